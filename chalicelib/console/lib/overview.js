// What needs attention first, and the sums of a project.
import { hasEnded, waits, whyText } from "./run_facts.js";

/** @typedef {import("../types").RunSummary} RunSummary */
/** @typedef {import("../types").Instance} Instance */
/** @typedef {import("../types").FleetSummary} FleetSummary */
/** @typedef {{id: string, kind: "bad" | "warn" | "wait", what: "runs" | "fleets" | "instances", name: string, state: string, why: string, at: string, of: string | null, weight: number}} Item
 *   `of`: the fleet of an instance */

const DAY = 86_400_000;
const PATIENCE = 60_000; // milliseconds that a run may wait before anybody is told

/** The items, the most pressing first: one's own failures, then others', then what waits, then machines.
 * @param {RunSummary[]} runs @param {Instance[]} instances @param {FleetSummary[]} fleets @param {{me: string, now: number}} where @returns {Item[]} */
export function attention(runs, instances, fleets, { me, now }) {
  const newer = new Set(), items = /** @type {Item[]} */ ([]);
  for (const run of runs) {
    const item = ofRun(run, now);
    if (item && !newer.has(run.name)) items.push({ ...item, weight: item.weight - (run.user === me ? 5 : 0) });
    newer.add(run.name); // lists are newest first: an older run of the name is history
  }
  items.push(...instances.flatMap(ofInstance), ...fleets.flatMap(ofFleet));
  return items.sort((one, two) => one.weight - two.weight || Date.parse(two.at) - Date.parse(one.at));
}

/** @param {RunSummary} run @param {number} now @returns {Item | null} */
function ofRun(run, now) {
  const common = { id: run.id, what: /** @type {const} */ ("runs"), name: run.name, of: null };
  if (run.status === "failed" && run.finished_at && now - Date.parse(run.finished_at) < DAY) {
    return { ...common, kind: "bad", state: "failed", why: whyText(run), at: run.finished_at, weight: 10 };
  }
  if (waits(run) && run.why && now - Date.parse(run.submitted_at) > PATIENCE) {
    return { ...common, kind: "wait", state: "waiting", why: run.why, at: run.submitted_at, weight: 20 };
  }
  const { replicas } = run;
  if (!hasEnded(run) && run.status === "running" && replicas && replicas.ready < replicas.wanted) {
    const why = `${replicas.ready} of ${replicas.wanted} replicas ready${run.why ? `: ${run.why}` : ""}`;
    return { ...common, kind: "warn", state: "warning", why, at: run.submitted_at, weight: 15 };
  }
  return null;
}

/** @param {Instance} instance @returns {Item[]} */
function ofInstance(instance) {
  if (instance.status === "terminated") return [];
  const bad = instance.health === "failure", ill = bad || instance.health === "warning" || instance.unreachable;
  if (!ill) return [];
  const state = instance.unreachable ? "unreachable" : instance.health;
  const why = instance.unreachable ? (instance.why ?? "it doesn’t report") : (instance.health_why ?? "its checks say so");
  return [{ id: instance.id, kind: bad ? "bad" : "warn", what: "instances", name: instance.name, state, why, at: instance.created_at, of: instance.fleet, weight: bad ? 12 : 18 }];
}

/** @param {FleetSummary} fleet @returns {Item[]} */
const ofFleet = (fleet) => (fleet.why && fleet.status !== "terminated" ? [{ id: fleet.id, kind: fleet.status === "failed" ? "bad" : "warn", what: "fleets", name: fleet.name, state: fleet.status === "failed" ? "failed" : "warning", why: fleet.why, at: fleet.created_at, of: null, weight: 25 }] : []);

/** The numbers of a project. @param {RunSummary[]} runs @param {FleetSummary[]} fleets @param {number} now */
export function summary(runs, fleets, now) {
  const recent = (/** @type {RunSummary} */ run) => run.finished_at !== null && now - Date.parse(run.finished_at) < DAY;
  const sum = (/** @type {(fleet: FleetSummary) => number} */ of) => fleets.reduce((total, fleet) => total + of(fleet), 0);
  return {
    running: runs.filter((run) => run.status === "running").length,
    waiting: runs.filter(waits).length,
    failed: runs.filter((run) => run.status === "failed" && recent(run)).length,
    gpus: sum((fleet) => fleet.gpus),
    busy: sum((fleet) => fleet.busy_gpus),
    hourly: sum((fleet) => fleet.price_per_hour_usd),
  };
}
