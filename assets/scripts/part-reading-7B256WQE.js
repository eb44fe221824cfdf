import{a,b}from"./part-chunk-QDBA2A4K.js";import"./part-chunk-5YI4GUDY.js";import"./part-chunk-Z7DI454P.js";import"./part-chunk-XDZOWMRQ.js";export{b as parseTrace,a as readTrace};
