import{a as r}from"./part-chunk-KEU4N2R7.js";import"./part-chunk-QLILG7DB.js";import"./part-chunk-USPD7C33.js";import"./part-chunk-XDZOWMRQ.js";export{r as readTrace};
