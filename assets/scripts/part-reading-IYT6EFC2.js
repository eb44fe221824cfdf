import{a,b}from"./part-chunk-7UYKGVCV.js";import"./part-chunk-TM77C6B6.js";import"./part-chunk-OMYS5ZLL.js";import"./part-chunk-XDZOWMRQ.js";export{b as parseTrace,a as readTrace};
