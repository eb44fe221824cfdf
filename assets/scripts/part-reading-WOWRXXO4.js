import{a as r}from"./part-chunk-2D4HST5M.js";import"./part-chunk-MSOTBA2M.js";import"./part-chunk-OACBK2ML.js";import"./part-chunk-XDZOWMRQ.js";export{r as readTrace};
