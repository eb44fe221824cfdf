import{a,b}from"./part-chunk-FTTRZHTG.js";import"./part-chunk-FPHQDBH4.js";import"./part-chunk-5N3NKTWD.js";export{b as parseTrace,a as readTrace};
