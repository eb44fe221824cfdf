import{a as r}from"./part-chunk-QSDEYYB5.js";import"./part-chunk-FNIJBGV7.js";import"./part-chunk-ZFUJSRXV.js";import"./part-chunk-XDZOWMRQ.js";export{r as readTrace};
