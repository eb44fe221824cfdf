import{a,b}from"./part-chunk-3D3DMMME.js";import"./part-chunk-XTS5XNNQ.js";import"./part-chunk-QM2SMHST.js";export{b as parseTrace,a as readTrace};
