// The browser's store of files, which it may lack or forbid.

/** The name under which the browser's Cache API keeps the files. */
export const STORE = "surelock";

/** The result of f(), null if the browser forbids it or has no room. */
export async function allowed(f) {
  try {
    return await f();
  } catch (error) {
    if (error instanceof DOMException) return null;
    throw error;
  }
}
