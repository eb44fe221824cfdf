const base = new URL("surelock/", document.baseURI);
import(new URL("js/all.js", base).href).then(({ modules }) =>
  modules["live.js"].connect({ element, props, trigger, server, watch, base }),
);
