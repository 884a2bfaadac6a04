// States at instants, of which the latest that were looked at are kept: those that are final never change.
import { get } from "../../data/api.js";
import { usePolling } from "../../data/live.js";
import { useEffect, useState } from "../../kit/preact.js";
import { DAY, STEP, instantText } from "../../lib/past.js";

/** @typedef {import("../../types").Past} Past */

const KEPT = 20;
const PATIENCE = 120; // milliseconds: a slider passes many instants on its way to one
/** @type {Map<string, Past>} */
const kept = new Map();

/** @param {string} project @param {number} at @param {AbortSignal} [signal] @returns {Promise<Past>} */
async function stateAt(project, at, signal) {
  const key = `${project} ${at}`;
  const known = kept.get(key);
  if (known) return known;
  const state = /** @type {Past} */ (await get(`/projects/${encodeURIComponent(project)}/state`, { at: instantText(at) }, { signal }));
  if (state.final) kept.set(key, state);
  if (kept.size > KEPT) kept.delete(/** @type {string} */ (kept.keys().next().value));
  return state;
}

/** The state at an instant; meanwhile the one that was shown before. @param {string} project @param {number} at */
export function usePast(project, at) {
  const [found, setFound] = useState(/** @type {{state?: Past, error?: any, at: number}} */ ({ at: 0 }));
  useEffect(() => {
    const leaving = new AbortController();
    const load = () => stateAt(project, at, leaving.signal).then(
      (state) => {
        setFound({ state, at });
        for (const near of [at - STEP, at + STEP]) if (near < Date.now() - 2 * STEP) void stateAt(project, near, leaving.signal).catch(() => null); // it is asked for again when it is wanted
      },
      (error) => !leaving.signal.aborted && setFound({ error, at }),
    );
    const timer = setTimeout(load, kept.has(`${project} ${at}`) ? 0 : PATIENCE);
    return () => {
      clearTimeout(timer);
      leaving.abort();
    };
  }, [project, at]);
  return { ...found, loading: found.at !== at };
}

const PAGES = 8; // of marks, of a project in which very much happens

/** @param {string} project @returns {Promise<import("../../types").Mark[]>} */
async function marksOf(project) {
  const url = `/projects/${encodeURIComponent(project)}/marks`, since = new Date(Date.now() - DAY).toISOString();
  let page = await get(url, { since }), found = page.items;
  for (let read = 1; page.next_until && read < PAGES; read += 1) {
    page = await get(url, { since, until: page.next_until });
    found = [...page.items, ...found];
  }
  return found;
}

/** What happened in the last day. @param {string} project @returns {import("../../types").Mark[]} */
export function useMarks(project) {
  const [marks, setMarks] = useState(/** @type {import("../../types").Mark[]} */ ([]));
  usePolling(async () => {
    const found = await marksOf(project).catch(() => null);
    if (found) setMarks(found); // without marks the slider still works
  }, 60, [project]);
  return marks;
}
