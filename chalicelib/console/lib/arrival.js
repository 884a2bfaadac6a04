// What an address brings besides a place: a code that signs in, or what an account provider sent the browser back with.

/** @typedef {{kind: "code", code: string, to: string}
 *   | {kind: "sign-on", provider: string, code: string, state: string, error: string}} Arrival */

/** @param {string} hash @returns {Arrival | null} */
export function arrivalOf(hash) {
  const given = new URLSearchParams(hash.replace(/^#/, ""));
  const code = given.get("code") ?? "", provider = given.get("sign-on");
  if (provider) return { kind: "sign-on", provider, code, state: given.get("state") ?? "", error: given.get("error") ?? "" };
  if (code && !hash.startsWith("#/")) return { kind: "code", code, to: placeOf(given.get("to")) };
  return null;
}

/** A place within the page, or its start: nothing else is gone to. @param {string | null} text */
export const placeOf = (text) => (text?.startsWith("/") ? `#${text}` : "#/");

/** Whether a browser may be sent on there: to a command that waits on this machine.
 * @param {string | null} url */
export function isLocal(url) {
  if (!url || !URL.canParse(url)) return false;
  const { protocol, hostname } = new URL(url);
  return protocol === "http:" && hostname === "localhost";
}
