import{a as r}from"./part-chunk-F2I47N7V.js";import"./part-chunk-HBLG7EAU.js";import"./part-chunk-OACBK2ML.js";import"./part-chunk-XDZOWMRQ.js";export{r as readTrace};
