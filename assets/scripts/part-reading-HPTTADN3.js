import{a as r}from"./part-chunk-SUR4VGAX.js";import"./part-chunk-3LWHHZKP.js";import"./part-chunk-ZFUJSRXV.js";import"./part-chunk-XDZOWMRQ.js";export{r as readTrace};
