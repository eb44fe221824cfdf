import{a as r}from"./part-chunk-DIR6WPLT.js";import"./part-chunk-B4NDLXPZ.js";import"./part-chunk-UW6P3CYN.js";import"./part-chunk-XDZOWMRQ.js";export{r as readTrace};
