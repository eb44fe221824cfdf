import(new URL("surelock/scripts/page.js", document.baseURI).href).then((page) => page.stage({ element, trigger }));
