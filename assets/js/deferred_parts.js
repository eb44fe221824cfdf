// The parts of a stage that are loaded when they are needed. The build makes one file of every part.

/** By the name of a part, a function that loads its module and returns a promise of the part's class. */
export const LOADS = {
  curves: async () => (await import("./curves/curves.js")).Curves,
  drawer: async () => (await import("./curves/drawer.js")).Drawer,
  lessons: async () => (await import("./lessons/view.js")).Lessons,
  touching: async () => (await import("./touch/touching.js")).Touching,
  presenter: async () => (await import("./stage/presenter.js")).Presenter,
  panels: async () => (await import("./below/panels.js")).Panels,
};
