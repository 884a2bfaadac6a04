// The token that calls are made with. It is in memory alone, unless its owner keeps it in this tab.
import { store } from "../lib/store.js";

const KEPT = "dstack-token";

/** The token; null where nobody is signed in. */
export const token = store(/** @type {string | null} */ (sessionStorage.getItem(KEPT)));

/** Whether the server refused the token that we have: someone must sign in before the page goes on. */
export const refused = store(false);

/** @param {string} text @param {boolean} keep */
export function setToken(text, keep) {
  if (keep) sessionStorage.setItem(KEPT, text);
  else sessionStorage.removeItem(KEPT);
  token.set(text);
  refused.set(false);
}

export function dropToken() {
  sessionStorage.removeItem(KEPT);
  token.set(null);
  refused.set(false);
}

export const isKept = () => sessionStorage.getItem(KEPT) !== null;

/** Waits until there is a token that isn't this one. @param {string | null} old @returns {Promise<void>} */
export function renewed(old) {
  return new Promise((resolve) => {
    const check = () => {
      if (token.get() === null || token.get() === old) return;
      stop();
      resolve();
    };
    const stop = token.subscribe(check);
    check();
  });
}
