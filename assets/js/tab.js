// What this tab keeps over a reload, by name, as JSON in the browser's session storage. That may be full, or forbidden as in
// a notebook's frame: then nothing is kept, and whoever asks is told so.

const PREFIX = "surelock:";

function own() {
  try {
    return globalThis.sessionStorage ?? null;
  } catch (error) {
    if (error instanceof DOMException) return null;
    throw error;
  }
}

export class Tab {
  constructor(storage = own()) {
    this.storage = storage;
  }

  /** What was kept, or null. */
  get(name) {
    try {
      return JSON.parse(this.storage?.getItem(PREFIX + name) ?? "null");
    } catch (error) {
      if (error instanceof SyntaxError) return null; // somebody else's, or torn
      throw error;
    }
  }

  /** Says whether it is kept now. */
  set(name, value) {
    try {
      this.storage?.setItem(PREFIX + name, JSON.stringify(value));
      return this.storage !== null;
    } catch (error) {
      if (error instanceof DOMException) return false;
      throw error;
    }
  }

  remove(name) {
    this.storage?.removeItem(PREFIX + name);
  }
}
