import{a,b}from"./part-chunk-TM3TPANN.js";import"./part-chunk-GAMM6CCJ.js";import"./part-chunk-XDZOWMRQ.js";export{b as parseTrace,a as readTrace};
