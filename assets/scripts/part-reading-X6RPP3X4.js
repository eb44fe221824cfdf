import{a,b}from"./part-chunk-44DFCFGS.js";import"./part-chunk-BX3OXC2K.js";import"./part-chunk-XDZOWMRQ.js";export{b as parseTrace,a as readTrace};
