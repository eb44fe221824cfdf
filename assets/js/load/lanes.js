import(new URL("surelock/scripts/page.js", document.baseURI).href).then((page) =>
  page.lanes({ element, props, watch }),
);
