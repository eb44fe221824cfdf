import{a as r}from"./part-chunk-3S3UD22N.js";import"./part-chunk-U5Q7LPPX.js";import"./part-chunk-USPD7C33.js";import"./part-chunk-XDZOWMRQ.js";export{r as readTrace};
