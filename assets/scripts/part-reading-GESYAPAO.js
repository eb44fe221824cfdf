import{a,b}from"./part-chunk-6UPIDX4B.js";import"./part-chunk-TVFWR7QC.js";export{b as parseTrace,a as readTrace};
