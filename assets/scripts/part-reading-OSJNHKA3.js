import{a as r}from"./part-chunk-GOWKJHVI.js";import"./part-chunk-4MVIWM5I.js";import"./part-chunk-ZFUJSRXV.js";import"./part-chunk-XDZOWMRQ.js";export{r as readTrace};
