// Tells the script in the page's head (load/hold.js) that Run can be taken from now on: stage and buttons are there, and
// the form holds what the page's load event brought.

import { page } from "./state.js";

const FORM_MS = 60; // the other fields of the same answer

export const formIsReady = new Promise((then) => {
  const end = page.follow(["live", "arrived"], ({ live, arrived }) => {
    if (!live || !arrived) return;
    setTimeout(() => {
      end();
      dispatchEvent(new Event("sl-ready"));
      then();
    }, FORM_MS);
  });
});
