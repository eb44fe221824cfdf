// A page for tests of what makes nodes.

/** Nodes of a page that is none: they keep what they are given, and `fire` what they listen to. Frames come by `pass`. */
export function onPage(t) {
  const frames = [];
  const made = (tag) => {
    const node = new (class Node {})();
    return Object.assign(node, {
      ...{ tag, children: [], attributes: {}, heard: {}, style: {}, value: "", textContent: "", calls: [] },
      append: (...more) => node.children.push(...more),
      replaceChildren: (...more) => Object.assign(node, { children: more }),
      setAttribute: (name, value) => Object.assign(node.attributes, { [name]: value }),
      addEventListener: (name, f) => Object.assign(node.heard, { [name]: f }),
      pen: { fillRect: (...at) => node.calls.push([node.pen.fillStyle, ...at]) },
      getContext: () => node.pen,
      fire: (name) => node.heard[name](),
      all: (name) =>
        node.children.flatMap((each) =>
          each.all ? [...(each.className?.split(" ").includes(name) ? [each] : []), ...each.all(name)] : [],
        ),
      find: (name) => node.all(name)[0],
    });
  };
  const globals = {
    document: { createElement: made, createElementNS: (_, tag) => made(tag) },
    ResizeObserver: class {
      observe() {}
    },
    requestAnimationFrame: (f) => frames.push(f),
    getComputedStyle: () => ({ getPropertyValue: (name) => name }),
    devicePixelRatio: 2,
  };
  Object.assign(globalThis, globals);
  t.after(() => {
    for (const name of Object.keys(globals)) delete globalThis[name];
  });
  return (seconds) => {
    let now = performance.now();
    for (const end = now + 1000 * seconds; now < end; ) {
      now += 20;
      for (const f of frames.splice(0)) f(now);
    }
  };
}
