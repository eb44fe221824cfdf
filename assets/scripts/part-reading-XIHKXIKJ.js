import{a as r}from"./part-chunk-QKWNOABV.js";import"./part-chunk-L33AOCYU.js";import"./part-chunk-OACBK2ML.js";import"./part-chunk-XDZOWMRQ.js";export{r as readTrace};
