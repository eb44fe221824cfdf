// How the parts of the page that live in different components hear of each other. Events: "state" (detail: idle, running or paused), "waiting" (detail: whether a run waits for the device), "wish" (detail: "pause" or "stop" until it has worked, else null), "run" (detail: refused, to be set where it cannot be), "pause", "resume", "step", "stop".

export const bus = new EventTarget();
export const tell = (type, detail) => bus.dispatchEvent(new CustomEvent(type, { detail }));
export const listen = (type, f) => bus.addEventListener(type, (event) => f(event.detail));
