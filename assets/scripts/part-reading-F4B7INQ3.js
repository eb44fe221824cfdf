import{a,b}from"./part-chunk-C7YF6QLJ.js";import"./part-chunk-TA736NX6.js";import"./part-chunk-UFFJVVSK.js";import"./part-chunk-XDZOWMRQ.js";export{b as parseTrace,a as readTrace};
