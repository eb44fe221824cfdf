import{a as r}from"./part-chunk-4LWBE74I.js";import"./part-chunk-XPP2TD75.js";import"./part-chunk-USPD7C33.js";import"./part-chunk-XDZOWMRQ.js";export{r as readTrace};
