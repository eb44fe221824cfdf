import{a as r}from"./part-chunk-655NOVEK.js";import"./part-chunk-BQB35XFB.js";import"./part-chunk-USPD7C33.js";import"./part-chunk-XDZOWMRQ.js";export{r as readTrace};
