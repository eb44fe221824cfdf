import(new URL("surelock/js/controls.js", document.baseURI).href).then(({ connect }) => connect({ element }));
