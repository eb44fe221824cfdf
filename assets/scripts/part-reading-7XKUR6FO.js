import{a,b}from"./part-chunk-7YLUFHBL.js";import"./part-chunk-IIN7OIXA.js";import"./part-chunk-QM2SMHST.js";export{b as parseTrace,a as readTrace};
