import{a,b}from"./part-chunk-BYT26IF3.js";import"./part-chunk-IKRTL764.js";import"./part-chunk-XDZOWMRQ.js";export{b as parseTrace,a as readTrace};
