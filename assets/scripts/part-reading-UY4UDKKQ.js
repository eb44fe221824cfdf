import{a,b}from"./part-chunk-QWD5MQOH.js";import"./part-chunk-7QZQ2GXU.js";import"./part-chunk-QM2SMHST.js";export{b as parseTrace,a as readTrace};
