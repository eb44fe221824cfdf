import{a,b}from"./part-chunk-4ZC562YR.js";import"./part-chunk-3HVSQQMK.js";import"./part-chunk-QM2SMHST.js";export{b as parseTrace,a as readTrace};
