import{a,b}from"./part-chunk-5NKYWLXW.js";import"./part-chunk-XKDQRDQZ.js";import"./part-chunk-5N3NKTWD.js";export{b as parseTrace,a as readTrace};
