import{a,b}from"./part-chunk-OGGO7BK5.js";import"./part-chunk-3UNLY7XO.js";import"./part-chunk-5N3NKTWD.js";export{b as parseTrace,a as readTrace};
