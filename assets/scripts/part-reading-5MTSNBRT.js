import{a,b}from"./part-chunk-PHK5ZIGS.js";import"./part-chunk-JZZXF2QT.js";import"./part-chunk-QM2SMHST.js";export{b as parseTrace,a as readTrace};
