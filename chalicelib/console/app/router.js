// Where the page is: everything after `#/`. So the same files work behind any prefix, and every state has a link.
import { useStore } from "../kit/use_store.js";
import { arrivalOf } from "../lib/arrival.js";
import { format, parse } from "../lib/route.js";
import { store } from "../lib/store.js";

export const route = store(parse(arrivalOf(location.hash) ? "" : location.hash));
addEventListener("hashchange", () => arrivalOf(location.hash) || route.set(parse(location.hash))); // a code is no place

export const link = format;
export const useRoute = () => useStore(route);

/** @param {string} href as `link` makes it @param {{replace?: boolean}} [options] */
export function go(href, { replace = false } = {}) {
  if (href === location.hash) return;
  history[replace ? "replaceState" : "pushState"](null, "", href);
  route.set(parse(location.hash));
}

/** Changes parts of the query; null removes one. It replaces the entry in the history: filters aren't steps.
 * @param {Record<string, string | number | null | undefined>} changes @param {{push?: boolean}} [options] */
export function setQuery(changes, { push = false } = {}) {
  const { project, page, parts, query } = route.get();
  go(link(project, page, ...parts, { ...query, ...changes }), { replace: !push });
}
