import{a,b}from"./part-chunk-Q6AESNY3.js";import"./part-chunk-YRRVKUFE.js";import"./part-chunk-QM2SMHST.js";export{b as parseTrace,a as readTrace};
