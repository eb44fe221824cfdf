import{a,b}from"./part-chunk-ZITO4EG4.js";import"./part-chunk-7UXN3RGK.js";import"./part-chunk-QM2SMHST.js";export{b as parseTrace,a as readTrace};
