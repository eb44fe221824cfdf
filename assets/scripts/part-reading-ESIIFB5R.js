import{a as r}from"./part-chunk-RNVZ4UDV.js";import"./part-chunk-DQKUYACE.js";import"./part-chunk-ZFUJSRXV.js";import"./part-chunk-XDZOWMRQ.js";export{r as readTrace};
