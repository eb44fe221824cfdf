import{a,b}from"./part-chunk-YWSXCVUV.js";import"./part-chunk-B4NDLXPZ.js";import"./part-chunk-UW6P3CYN.js";import"./part-chunk-XDZOWMRQ.js";export{b as parseTrace,a as readTrace};
