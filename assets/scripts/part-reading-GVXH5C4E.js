import{a,b}from"./part-chunk-WICPZW4A.js";import"./part-chunk-B7POKUOF.js";import"./part-chunk-QM2SMHST.js";export{b as parseTrace,a as readTrace};
