// The token that calls are made with. It is in memory alone, unless its owner keeps it in this tab.
import { store } from "../lib/store.js";

const KEPT = "dstack-token";

/** The token; null where nobody is signed in. */
export const token = store(/** @type {string | null} */ (sessionStorage.getItem(KEPT)));

/** Whether the server refused the token that we have: someone must sign in before the page goes on. */
export const refused = store(false);

/** Whether the token was made for this page, which never keeps it: it ends when its user signs out. */
let own = false;
export const isOwn = () => own;

/** @param {string} text @param {{keep: boolean, made: boolean}} options `made`: for this page */
export function setToken(text, { keep, made }) {
  own = made;
  if (keep) sessionStorage.setItem(KEPT, text);
  else sessionStorage.removeItem(KEPT);
  token.set(text);
  refused.set(false);
}

export function dropToken() {
  sessionStorage.removeItem(KEPT);
  own = false;
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
