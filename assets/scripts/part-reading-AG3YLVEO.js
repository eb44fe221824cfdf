import{a,b}from"./part-chunk-J75GQ36B.js";import"./part-chunk-IYRSXWII.js";import"./part-chunk-XDZOWMRQ.js";export{b as parseTrace,a as readTrace};
