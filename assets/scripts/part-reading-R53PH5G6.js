import{a as r}from"./part-chunk-HB2KPV7X.js";import"./part-chunk-P43H7GEZ.js";import"./part-chunk-USPD7C33.js";import"./part-chunk-XDZOWMRQ.js";export{r as readTrace};
