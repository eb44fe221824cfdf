import{a as r}from"./part-chunk-JJSYOXZA.js";import"./part-chunk-2DJY4SIV.js";import"./part-chunk-USPD7C33.js";import"./part-chunk-XDZOWMRQ.js";export{r as readTrace};
