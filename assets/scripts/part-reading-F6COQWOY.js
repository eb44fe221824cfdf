import{a,b}from"./part-chunk-RDFLWTHZ.js";import"./part-chunk-PILPIEBL.js";import"./part-chunk-7OS76XSX.js";import"./part-chunk-XDZOWMRQ.js";export{b as parseTrace,a as readTrace};
