import{a,b}from"./part-chunk-LWLCVHRV.js";import"./part-chunk-TNCEXTO6.js";import"./part-chunk-UW6P3CYN.js";import"./part-chunk-XDZOWMRQ.js";export{b as parseTrace,a as readTrace};
