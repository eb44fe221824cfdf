// What this tab keeps over a reload: its latest runs, which of them was on show, and the address it had then. In the
// browser's session storage, which may be full or forbidden: then the page goes on without, and says so once.

const PREFIX = "surelock:";
const MOST = 4_000_000; // characters of all runs together; browsers keep about five million a page

function usable() {
  try {
    const storage = window.sessionStorage;
    storage.setItem(`${PREFIX}try`, "1");
    storage.removeItem(`${PREFIX}try`);
    return storage;
  } catch (error) {
    if (error instanceof DOMException) return null; // forbidden, or full
    throw error;
  }
}

export class Store {
  /** onProblem(sentence) is called once, where nothing can be kept. */
  constructor({ onProblem, storage = usable() }) {
    Object.assign(this, { onProblem, storage });
  }

  #get(name) {
    try {
      return JSON.parse(this.storage?.getItem(PREFIX + name) ?? "null");
    } catch (error) {
      if (error instanceof SyntaxError) return null; // somebody else's, or torn
      throw error;
    }
  }

  #set(name, value) {
    try {
      this.storage?.setItem(PREFIX + name, JSON.stringify(value));
      return Boolean(this.storage);
    } catch (error) {
      if (error instanceof DOMException) return false;
      throw error;
    }
  }

  /** [{id, source, document}, ...], the oldest first. */
  runs() {
    return (this.#get("runs") ?? []).flatMap(({ id, source }) => {
      const document = this.#get(`run-${id}`);
      return document ? [{ id, source, document }] : [];
    });
  }

  /** Keeps a run under its id; older ones make room for it. */
  keep(id, source, document) {
    const size = JSON.stringify(document).length;
    let index = (this.#get("runs") ?? []).filter((entry) => entry.id !== id);
    const drop = () => {
      const [oldest, ...rest] = index;
      this.storage?.removeItem(`${PREFIX}run-${oldest.id}`);
      index = rest;
    };
    while (index.length && size + index.reduce((sum, entry) => sum + entry.size, 0) > MOST) drop();
    while (!this.#set(`run-${id}`, document)) {
      if (!this.storage || !index.length) {
        this.#set("runs", index);
        return this.#problem();
      }
      drop();
    }
    this.#set("runs", [...index, { id, source, size }]);
  }

  #problem() {
    if (!this.told) this.onProblem("This browser keeps no runs for a reload: export what you want to keep.");
    this.told = true;
  }

  /** The run on show and the page's query then. */
  get shown() {
    return this.#get("shown") ?? {};
  }
  set shown(value) {
    this.#set("shown", value);
  }
}
