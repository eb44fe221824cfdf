// Plotly's toolbar as a toolbar: one Tab stop for a figure, the arrows move inside it, and it never covers a legend.

/** Call after a figure is drawn: Plotly makes its buttons anew now and then. */
export function tameToolbar(plot, label) {
  const bar = plot.querySelector(".modebar");
  if (!bar) return;
  bar.parentElement.style.top = `${plot._fullLayout._size.t}px`; // under the legend
  const buttons = [...bar.querySelectorAll(".modebar-btn")];
  if (buttons.filter(({ tabIndex }) => tabIndex === 0).length !== 1) stop(buttons, buttons[0]);
  for (const button of buttons) Object.assign(button, { role: "button", ariaLabel: button.dataset.title ?? "" });
  if (bar.ariaLabel === label) return;
  Object.assign(bar, { role: "toolbar", ariaLabel: label });
  bar.addEventListener("keydown", (event) => {
    const now = [...bar.querySelectorAll(".modebar-btn")];
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    const at = now.indexOf(document.activeElement);
    if (by) {
      const next = now[(at + by + now.length) % now.length];
      stop(now, next);
      next.focus();
    } else if (event.key === "Enter" || event.key === " ") now[at]?.click();
    else return;
    event.preventDefault();
    event.stopPropagation();
  });
}

function stop(buttons, chosen) {
  for (const button of buttons) button.tabIndex = button === chosen ? 0 : -1;
}
