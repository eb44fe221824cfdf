import{a,b}from"./part-chunk-DIYVGM6E.js";import"./part-chunk-4JMPJ7NS.js";import"./part-chunk-FKPUW65A.js";import"./part-chunk-XDZOWMRQ.js";export{b as parseTrace,a as readTrace};
