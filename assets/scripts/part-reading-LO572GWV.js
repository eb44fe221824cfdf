import{a,b}from"./part-chunk-2AYGR6OJ.js";import"./part-chunk-3J3Z5SYI.js";import"./part-chunk-QM2SMHST.js";export{b as parseTrace,a as readTrace};
