import{a,b}from"./part-chunk-NKDARO7Z.js";import"./part-chunk-B5NYTLCG.js";import"./part-chunk-XDZOWMRQ.js";export{b as parseTrace,a as readTrace};
