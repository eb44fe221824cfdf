// Gradio 6.31's loading screen, once gone, leaves a frame loop running for as long as the page is open: 5 % of a core, taken
// from the decoders of a visitor who runs the page at home. The loop's module keeps the requestAnimationFrame that it finds
// when it is loaded. That one calls twice a second; whoever else asks gets the browser's.
{
  const frame = window.requestAnimationFrame.bind(window);
  const put = (how) => Object.defineProperty(window, "requestAnimationFrame", { configurable: true, ...how });
  put({
    get() {
      if (!new Error().stack.includes("statustracker")) return frame;
      put({ value: frame, writable: true });
      return (callback) => setTimeout(() => frame(callback), 500);
    },
  });
}
