import{a as r}from"./part-chunk-NHBFXAFR.js";import"./part-chunk-LLKL42EY.js";import"./part-chunk-ZFUJSRXV.js";import"./part-chunk-XDZOWMRQ.js";export{r as readTrace};
