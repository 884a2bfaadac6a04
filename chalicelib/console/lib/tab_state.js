// What a tab among many shows of its page: that something needs attention, or how the run that is open does.
import { attention } from "./overview.js";

/** @typedef {import("../types").RunSummary} RunSummary */
/** @typedef {{mark: string, kind: "bad" | "good" | null}} TabState `mark`: before the title; `kind`: of the dot on the icon */

/** @param {RunSummary[]} runs newest first @param {string | null} open the name of the run whose page it is
 * @param {{me: string, now: number}} where @returns {TabState} */
export function tabStateOf(runs, open, where) {
  const run = open !== null && runs.find((each) => each.name === open);
  if (run) {
    if (run.status === "done") return { mark: "✓ ", kind: "good" };
    if (run.status === "failed") return { mark: "✕ ", kind: "bad" };
    return { mark: run.status === "running" ? "▸ " : "", kind: null };
  }
  const pressing = attention(runs, [], [], where).length;
  return pressing > 0 ? { mark: `(${pressing}) `, kind: "bad" } : { mark: "", kind: null };
}

/** @param {string} plain the address of the icon, a picture in SVG @param {TabState["kind"]} kind */
export function iconOf(plain, kind) {
  if (!kind) return plain;
  const dot = `%3Ccircle cx='12' cy='12' r='4' fill='%23${kind === "bad" ? "d92d20" : "12a150"}' stroke='%23fff'/%3E`;
  return plain.replace(/%3C\/svg%3E$/, `${dot}%3C/svg%3E`);
}
