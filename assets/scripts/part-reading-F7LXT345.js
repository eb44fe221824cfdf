import{a as r}from"./part-chunk-2KHJRGNW.js";import"./part-chunk-ILK6GS7X.js";import"./part-chunk-OACBK2ML.js";import"./part-chunk-XDZOWMRQ.js";export{r as readTrace};
