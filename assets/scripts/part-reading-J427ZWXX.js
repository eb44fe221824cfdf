import{a,b}from"./part-chunk-MFX6Z6QE.js";import"./part-chunk-KBLKDJHC.js";import"./part-chunk-XDZOWMRQ.js";export{b as parseTrace,a as readTrace};
