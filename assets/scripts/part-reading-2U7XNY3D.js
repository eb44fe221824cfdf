import{a as r}from"./part-chunk-JMFBALYH.js";import"./part-chunk-EZJP2QD6.js";import"./part-chunk-ZFUJSRXV.js";import"./part-chunk-XDZOWMRQ.js";export{r as readTrace};
