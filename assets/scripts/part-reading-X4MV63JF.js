import{a,b}from"./part-chunk-ZWK2P4EE.js";import"./part-chunk-PUC3X32Y.js";import"./part-chunk-QM2SMHST.js";export{b as parseTrace,a as readTrace};
