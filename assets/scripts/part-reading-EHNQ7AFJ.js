import{a,b}from"./part-chunk-MXL5N5PO.js";import"./part-chunk-R7EV5LGU.js";import"./part-chunk-QM2SMHST.js";export{b as parseTrace,a as readTrace};
