import{a as r}from"./part-chunk-UIK4LVRZ.js";import"./part-chunk-2HWUJEGL.js";import"./part-chunk-ZFUJSRXV.js";import"./part-chunk-XDZOWMRQ.js";export{r as readTrace};
