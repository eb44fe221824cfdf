import{a as r}from"./part-chunk-TGV5COKE.js";import"./part-chunk-3727R6X6.js";import"./part-chunk-ZFUJSRXV.js";import"./part-chunk-XDZOWMRQ.js";export{r as readTrace};
