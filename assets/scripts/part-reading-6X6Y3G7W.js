import{a as r}from"./part-chunk-6NANECXG.js";import"./part-chunk-5LQNHMTV.js";import"./part-chunk-ZFUJSRXV.js";import"./part-chunk-XDZOWMRQ.js";export{r as readTrace};
