import{a as r}from"./part-chunk-MKATOM5M.js";import"./part-chunk-UYWCDQCS.js";import"./part-chunk-USPD7C33.js";import"./part-chunk-XDZOWMRQ.js";export{r as readTrace};
