const base = new URL("surelock/", document.baseURI);
import(new URL("scripts/page.js", base).href).then((page) =>
  page.stage({ element, props, trigger, server, watch, base }),
);
