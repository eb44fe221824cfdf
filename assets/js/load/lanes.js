import(new URL("surelock/js/lanes.js", document.baseURI).href).then(({ connect }) =>
  connect({ element, props, watch }),
);
