import{a,b}from"./part-chunk-RC6O7MQI.js";import"./part-chunk-KHKLWUYB.js";import"./part-chunk-QM2SMHST.js";export{b as parseTrace,a as readTrace};
