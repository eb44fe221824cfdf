import{a,b}from"./part-chunk-T2SA3DWA.js";import"./part-chunk-2YNCN6ED.js";import"./part-chunk-XDZOWMRQ.js";export{b as parseTrace,a as readTrace};
