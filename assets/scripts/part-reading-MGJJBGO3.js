import{a,b}from"./part-chunk-2WYM47VI.js";import"./part-chunk-IXFEWRVO.js";import"./part-chunk-QM2SMHST.js";export{b as parseTrace,a as readTrace};
