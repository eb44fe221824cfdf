import{a,b}from"./part-chunk-VVZZLCNL.js";import"./part-chunk-J3Q4DCKN.js";import"./part-chunk-XDZOWMRQ.js";export{b as parseTrace,a as readTrace};
