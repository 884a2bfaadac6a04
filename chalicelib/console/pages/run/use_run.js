// The run of a page: its summary comes with the feed of the whole page, and what else belongs to it is fetched when that
// has changed, or soon again while it is on its way.
import { get } from "../../data/api.js";
import { useItem, usePolling } from "../../data/live.js";
import { useState } from "../../kit/preact.js";
import { hasEnded, runPath } from "../../lib/run_facts.js";

/** @typedef {import("../../types").Run} Run */
/** @typedef {import("../../types").Event} Event */
/** @typedef {{run: Run | null, events: Event[], error: any, at: number, reload: () => Promise<void>}} Loaded */

const MOVING = ["submitted", "provisioning", "terminating"];
const SOON = 2, LATER = 60, NEVER = 3600; // seconds
const PAGES = 5; // of events

/** @param {string} project @param {string} name @returns {Loaded} */
export function useRun(project, name) {
  const { item } = useItem("runs", project, name);
  const [state, setState] = useState(/** @type {Omit<Loaded, "reload">} */ ({ run: null, events: [], error: null, at: 0 }));
  const load = async () => {
    try {
      const run = /** @type {Run} */ (await get(runPath({ project, name })));
      const events = await eventsOf(project, run);
      setState({ run, events, error: null, at: Date.now() });
    } catch (error) {
      setState((before) => ({ ...before, error }));
    }
  };
  const { run } = state;
  const seconds = !run || MOVING.includes(run.status) ? SOON : hasEnded(run) ? NEVER : LATER;
  const changed = item ? [item.id, item.status, item.why, item.revision, item.finished_at, item.next_start_at].join(" ") : "";
  usePolling(load, seconds, [project, name, changed]);
  return { ...state, reload: load };
}

/** Events of the run, and of the machines that its jobs are on, newest first. @param {string} project @param {Run} run */
async function eventsOf(project, run) {
  const path = `/projects/${encodeURIComponent(project)}/events`;
  const machines = [...new Set(run.jobs.flatMap((job) => (job.instance ? [job.instance.name] : [])))].slice(0, 3);
  const lists = await Promise.all([
    pages(path, { run_id: run.id }, PAGES),
    ...machines.map((machine) => pages(path, { target: `instance/${machine}`, until: run.finished_at && after(run.finished_at) }, 1)),
  ]);
  const since = Date.parse(run.submitted_at);
  const every = new Map(lists.flat().filter((event) => Date.parse(event.at) >= since - 1).map((event) => [event.id, event]));
  return [...every.values()].sort((one, two) => Date.parse(two.at) - Date.parse(one.at));
}

/** @param {string} date */
const after = (date) => new Date(Date.parse(date) + 60_000).toISOString();

/** @param {string} path @param {Record<string, any>} query @param {number} most @returns {Promise<Event[]>} */
async function pages(path, query, most) {
  /** @type {Event[]} */
  const items = [];
  let cursor = null;
  for (let page = 0; page < most; page++) {
    const found = /** @type {any} */ (await get(path, { limit: 100, ...query, cursor }));
    items.push(...found.items);
    cursor = found.next;
    if (!cursor) break;
  }
  return items;
}
