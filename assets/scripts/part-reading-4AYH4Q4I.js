import{a,b}from"./part-chunk-BU746ZMK.js";import"./part-chunk-5VTDCU25.js";import"./part-chunk-BSBEKZRD.js";import"./part-chunk-XDZOWMRQ.js";export{b as parseTrace,a as readTrace};
