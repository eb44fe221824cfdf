const base = new URL("surelock/", document.baseURI);
import(new URL("js/live.js", base).href).then(({ connect }) =>
  connect({ element, props, trigger, server, watch, base }),
);
