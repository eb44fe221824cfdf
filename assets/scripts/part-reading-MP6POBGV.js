import{a,b}from"./part-chunk-6MSLT3RL.js";import"./part-chunk-IR746BEB.js";import"./part-chunk-QM2SMHST.js";export{b as parseTrace,a as readTrace};
