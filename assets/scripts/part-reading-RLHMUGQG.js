import{a as r}from"./part-chunk-OBSH3TDI.js";import"./part-chunk-YTCRPPMK.js";import"./part-chunk-ZFUJSRXV.js";import"./part-chunk-XDZOWMRQ.js";export{r as readTrace};
