import{a as r}from"./part-chunk-NEP2GCPB.js";import"./part-chunk-IP7AHNSC.js";import"./part-chunk-ZFUJSRXV.js";import"./part-chunk-XDZOWMRQ.js";export{r as readTrace};
