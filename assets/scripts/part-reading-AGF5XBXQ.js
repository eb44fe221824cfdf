import{a,b}from"./part-chunk-EE7E34CC.js";import"./part-chunk-2WIL46DU.js";import"./part-chunk-XDZOWMRQ.js";export{b as parseTrace,a as readTrace};
