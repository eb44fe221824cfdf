import{a,b}from"./part-chunk-BPZ4XBPH.js";import"./part-chunk-FFLBNAUJ.js";import"./part-chunk-XDZOWMRQ.js";export{b as parseTrace,a as readTrace};
