import{a,b}from"./part-chunk-R2YZXHXM.js";import"./part-chunk-S3N2Y576.js";import"./part-chunk-QM2SMHST.js";export{b as parseTrace,a as readTrace};
