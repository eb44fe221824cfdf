import{a,b}from"./part-chunk-5FPADVHJ.js";import"./part-chunk-ITVEPJEE.js";import"./part-chunk-QM2SMHST.js";export{b as parseTrace,a as readTrace};
