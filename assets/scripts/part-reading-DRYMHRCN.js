import{a as r}from"./part-chunk-VSGCLRZW.js";import"./part-chunk-3SW3JDMV.js";import"./part-chunk-USPD7C33.js";import"./part-chunk-XDZOWMRQ.js";export{r as readTrace};
