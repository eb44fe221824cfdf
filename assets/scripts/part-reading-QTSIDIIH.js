import{a,b}from"./part-chunk-X5BREA73.js";import"./part-chunk-RI3T2ZFW.js";import"./part-chunk-QM2SMHST.js";export{b as parseTrace,a as readTrace};
