import(new URL("surelock/js/all.js", document.baseURI).href).then(({ modules }) =>
  modules["controls.js"].connect({ element }),
);
