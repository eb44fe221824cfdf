import{a,b}from"./part-chunk-IVMBHOU6.js";import"./part-chunk-5JBWTGBJ.js";import"./part-chunk-5N3NKTWD.js";export{b as parseTrace,a as readTrace};
