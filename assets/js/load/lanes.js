import(new URL("surelock/js/all.js", document.baseURI).href).then(({ modules }) =>
  modules["lanes.js"].connect({ element, props, watch }),
);
