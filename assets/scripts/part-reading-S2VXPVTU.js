import{a,b}from"./part-chunk-HAVOMGIL.js";import"./part-chunk-RPGQLIGN.js";import"./part-chunk-QM2SMHST.js";export{b as parseTrace,a as readTrace};
