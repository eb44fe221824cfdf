import{a as r}from"./part-chunk-UMYZILH2.js";import"./part-chunk-ILJVSS2K.js";import"./part-chunk-ZFUJSRXV.js";import"./part-chunk-XDZOWMRQ.js";export{r as readTrace};
