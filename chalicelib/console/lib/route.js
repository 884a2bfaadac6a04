// Addresses within the page: `#/PROJECT/page/part?key=value`. A page of no project has `-` in its place.

/** @typedef {{project: string | null, page: string, parts: string[], query: Record<string, string>}} Route */

/** @param {string} hash @returns {Route} */
export function parse(hash) {
  const [path, search = ""] = split(hash.replace(/^#\/?/, ""), "?");
  const [project = "", page = "", ...parts] = path.split("/").map(decoded);
  return { project: project && project !== "-" ? project : null, page, parts: parts.filter(Boolean), query: Object.fromEntries(new URLSearchParams(search)) };
}

/**
 * @param {string | null} project @param {string} page
 * @param {...(string | number | Record<string, string | number | null | undefined>)} rest parts, and then perhaps a query
 */
export function format(project, page, ...rest) {
  const last = rest.at(-1);
  const query = typeof last === "object" ? last : {};
  const parts = /** @type {(string | number)[]} */ (typeof last === "object" ? rest.slice(0, -1) : rest);
  const path = [project ?? "-", page, ...parts].map((part) => encodeURIComponent(part)).join("/");
  const text = queryText(query);
  return `#/${path}${text && `?${text}`}`;
}

/** @param {Record<string, string | number | null | undefined>} query */
export function queryText(query) {
  const kept = Object.entries(query).filter(([, value]) => value !== null && value !== undefined && value !== "");
  return new URLSearchParams(kept.map(([key, value]) => [key, String(value)])).toString();
}

/** @param {string} text @param {string} by */
function split(text, by) {
  const at = text.indexOf(by);
  return at < 0 ? [text] : [text.slice(0, at), text.slice(at + 1)];
}

/** @param {string} part */
function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part; // typed by hand
  }
}
