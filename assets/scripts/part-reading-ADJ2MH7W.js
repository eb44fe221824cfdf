import{a,b}from"./part-chunk-X45XSVQS.js";import"./part-chunk-BAQSFNIZ.js";import"./part-chunk-QM2SMHST.js";export{b as parseTrace,a as readTrace};
