// Lists that are kept up to date by documents of changes (`GET /api/v1/changes`).

/** @typedef {import("../types").Kind} Kind */
/** @typedef {import("../types").Changes} Changes */
/** @typedef {Record<Kind, any[]>} Lists newest first */

/** @type {Kind[]} */
export const KINDS = ["runs", "fleets", "instances", "volumes", "gateways"];

/** @returns {Lists} */
export const noLists = () => ({ runs: [], fleets: [], instances: [], volumes: [], gateways: [] });

/** The lists after a document. One that didn't change is the same array as before, and so is each item that didn't.
 * @param {Lists} lists @param {Changes} document @returns {Lists} */
export function applied(lists, document) {
  const before = document.reset ? noLists() : lists;
  const after = { ...before };
  for (const kind of KINDS) after[kind] = patched(before[kind], document[kind], document.removed[kind]);
  return after;
}

/** @param {any[]} items @param {any[]} changed @param {string[]} removed */
function patched(items, changed, removed) {
  if (changed.length === 0 && removed.length === 0) return items;
  const places = new Map(items.map((item, place) => [item.id, place]));
  const next = [...items];
  let differs = false, added = false;
  for (const item of changed) {
    const place = places.get(item.id);
    if (place === undefined) {
      places.set(item.id, next.push(item) - 1);
      added = true;
    } else if (!same(next[place], item)) {
      next[place] = item;
      differs = true;
    }
  }
  if (added) next.sort(newestFirst);
  const gone = new Set(removed.filter((id) => places.has(id)));
  if (gone.size > 0) return next.filter((item) => !gone.has(item.id));
  return added || differs ? next : items;
}

/** @param {any} one @param {any} two */
const same = (one, two) => JSON.stringify(one) === JSON.stringify(two);

/** @param {any} one @param {any} two */
function newestFirst(one, two) {
  const [first, second] = [one, two].map((item) => item.submitted_at ?? item.created_at);
  return first === second ? (one.id < two.id ? 1 : -1) : first < second ? 1 : -1;
}

/** The runs with what they cost by now: the server says it when something else changes, and between that it is their price
 * times the time. `known`: the moment at which each cost was so, which is noted here for new ones.
 * @param {any[]} runs @param {number} now @param {WeakMap<any, number>} known @returns {any[]} the same array, if nothing costs */
export function costing(runs, now, known) {
  let differs = false;
  const next = runs.map((run) => {
    const at = known.get(run) ?? now;
    const more = run.price_per_hour_usd > 0 ? (run.price_per_hour_usd * (now - at)) / 3_600_000 : 0;
    const shown = more > 0 ? { ...run, cost_usd: run.cost_usd + more } : run;
    known.set(shown, more > 0 ? now : at);
    differs ||= shown !== run;
    return shown;
  });
  return differs ? next : runs;
}

/** Reads server-sent events, in whatever pieces they come. @param {(name: string, data: string) => void} onEvent @returns {(text: string) => void} */
export function eventReader(onEvent) {
  let rest = "";
  return (text) => {
    const parts = (rest + text).replaceAll("\r\n", "\n").split("\n\n");
    rest = parts.pop() ?? "";
    for (const part of parts) {
      const lines = part.split("\n");
      const values = (/** @type {string} */ field) => lines.filter((line) => line.startsWith(`${field}:`)).map((line) => line.slice(field.length + 1).replace(/^ /, ""));
      const data = values("data");
      if (data.length > 0) onEvent(values("event")[0] ?? "message", data.join("\n"));
    }
  };
}
