import{a,b}from"./part-chunk-3GHEHWGT.js";import"./part-chunk-7D6PQ23O.js";import"./part-chunk-A264DJ2V.js";import"./part-chunk-XDZOWMRQ.js";export{b as parseTrace,a as readTrace};
