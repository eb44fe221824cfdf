import{a,b}from"./part-chunk-OHKRMTVN.js";import"./part-chunk-5HUTI2ZS.js";import"./part-chunk-ZYAH7LN5.js";import"./part-chunk-XDZOWMRQ.js";export{b as parseTrace,a as readTrace};
