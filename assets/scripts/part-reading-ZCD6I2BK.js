import{a as r}from"./part-chunk-K2PDT3MN.js";import"./part-chunk-7IE3ZDF4.js";import"./part-chunk-ZFUJSRXV.js";import"./part-chunk-XDZOWMRQ.js";export{r as readTrace};
