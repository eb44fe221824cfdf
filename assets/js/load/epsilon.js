import(new URL("surelock/js/epsilon.js", document.baseURI).href).then(({ connect }) =>
  connect({ element, props, watch }),
);
