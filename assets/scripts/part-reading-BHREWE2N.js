import{a as r}from"./part-chunk-BL4WRRNY.js";import"./part-chunk-STTVFRB6.js";import"./part-chunk-ZFUJSRXV.js";import"./part-chunk-XDZOWMRQ.js";export{r as readTrace};
