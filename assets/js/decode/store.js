// The browser's store of files, which it may lack or forbid.

/** What the browser's Cache API keeps the files under. */
export const STORE = "surelock";

/** f(), or null where the browser forbids it or has no room. */
export async function allowed(f) {
  try {
    return await f();
  } catch (error) {
    if (error instanceof DOMException) return null;
    throw error;
  }
}
