import(new URL("surelock/scripts/page.js", document.baseURI).href).then((page) => page.controls({ element }));
