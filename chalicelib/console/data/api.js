// Calls to the API. A call that is refused for its token waits until somebody has signed in again, and is made once more.
import { Problem, problemOf } from "../lib/problem.js";
import { queryText } from "../lib/route.js";
import { refused, renewed, token } from "./token.js";

const BASE = new URL("api/", document.baseURI.split("#")[0]);
const V1 = "v1";
const ENDING_MS = 3000;

/** @typedef {Record<string, string | number | boolean | null | undefined>} Query */
/** @typedef {{query?: Query, body?: any, text?: string, headers?: Record<string, string>, signal?: AbortSignal}} Options */

/** GET below `/api/v1`. @param {string} path @param {Query} [query] @param {{signal?: AbortSignal}} [options] @returns {Promise<any>} */
export const get = (path, query, { signal } = {}) => json("GET", V1 + path, { query, signal });

/** Any other method below `/api/v1`. @param {string} method @param {string} path @param {any} [body] @param {Omit<Options, "body">} [options] @returns {Promise<any>} */
export const send = (method, path, body, options = {}) => json(method, V1 + path, { ...options, body });

/** The same with a configuration as it is written, in YAML. @param {string} method @param {string} path @param {string} text @param {Omit<Options, "body">} [options] @returns {Promise<any>} */
export const sendText = (method, path, text, options = {}) => json(method, V1 + path, { ...options, text });

/** A call of the older API, for what has no resource under `/api/v1`: `post("/users/public_keys/list", {…})`.
 * @param {string} path below `/api` @param {any} [body] @returns {Promise<any>} */
export const post = (path, body = {}) => json("POST", path.slice(1), { body });

/** All items of a list, page by page. @param {string} path @param {Query} [query] @returns {Promise<any[]>} */
export async function all(path, query = {}) {
  const items = [];
  let cursor = null;
  do {
    const page = /** @type {any} */ (await get(path, { limit: 100, ...query, cursor }));
    items.push(...page.items);
    cursor = page.next ?? null;
  } while (cursor);
  return items;
}

/** @param {string} method @param {string} path @param {Options} options @returns {Promise<any>} */
async function json(method, path, options) {
  const response = await call(method, path, options);
  return read(response);
}

/** What a successful answer says; null if it is empty. @param {Response} response @returns {Promise<any>} */
export async function read(response) {
  const text = await response.text();
  try {
    return text ? JSON.parse(text) : null;
  } catch {
    throw new Problem({ status: 0, title: "Another’s answer", detail: "Something between this page and the server answered in its place.", hint: "A proxy may want you to sign in: load the page again." });
  }
}

/** The response to a call that succeeded; raises Problem otherwise.
 * @param {string} method @param {string} path below `/api/` @param {Options} [options] @returns {Promise<Response>} */
export async function call(method, path, options = {}) {
  for (;;) {
    const used = token.get();
    const response = await attempt(method, path, options, used);
    if (response.ok || response.status === 304) return response;
    if (response.status !== 401 || used === null) throw problemOf(response.status, await parsed(response));
    if (token.get() === used) refused.set(true);
    await renewed(used);
  }
}

/** One call with a token that may be wrong: for signing in. @param {string} method @param {string} path @param {string | null} used @param {any} [body] */
export async function once(method, path, used, body) {
  const response = await attempt(method, path, { body }, used);
  const found = await parsed(response);
  if (!response.ok) throw problemOf(response.status, found);
  return found;
}

/** Revokes a token that was made for this page. @param {string} used */
export async function endToken(used) {
  try {
    await attempt("POST", "users/access_tokens/revoke_own", { signal: AbortSignal.timeout(ENDING_MS) }, used);
  } catch {
    // the server can't be reached: nobody is kept from signing out, and the token ends by itself
  }
}

/** @param {string} method @param {string} path @param {Options} options @param {string | null} used */
async function attempt(method, path, { query = {}, body, text, headers = {}, signal }, used) {
  const url = new URL(path, BASE);
  url.search = queryText(/** @type {any} */ (query));
  const sent = { ...headers, ...(used === null ? {} : { Authorization: `Bearer ${used}` }), ...typeOf(body, text) };
  try {
    return await fetch(url, { method, headers: sent, body: text ?? (body === undefined ? undefined : JSON.stringify(body)), signal, cache: "no-store", credentials: "same-origin", redirect: "error" });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Problem({ status: 0, title: "No connection", detail: "The server can't be reached.", hint: "See whether it runs, and whether this machine is online." });
  }
}

/** @param {any} body @param {string | undefined} text @returns {Record<string, string>} */
function typeOf(body, text) {
  if (text !== undefined) return { "Content-Type": "application/yaml" };
  return body === undefined ? {} : { "Content-Type": "application/json" };
}

/** @param {Response} response */
async function parsed(response) {
  try {
    return await response.json();
  } catch {
    return null; // a proxy's page: its status is all that it says
  }
}
