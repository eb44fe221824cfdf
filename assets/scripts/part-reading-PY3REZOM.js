import{a,b}from"./part-chunk-4EX32FWW.js";import"./part-chunk-KZZJOG7V.js";import"./part-chunk-QM2SMHST.js";export{b as parseTrace,a as readTrace};
