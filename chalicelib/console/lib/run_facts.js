// What lists say of a run, in few words.

/** @typedef {import("../types").RunSummary} RunSummary */

const ENDED = new Set(["done", "failed", "terminated"]);
/** Where the API has a run. @param {{project: string, name: string}} run */
export const runPath = ({ project, name }) => `/projects/${encodeURIComponent(project)}/runs/${encodeURIComponent(name)}`;
const WAITS = new Set(["pending", "submitted"]);

/** @param {{status: string}} run */
export const hasEnded = (run) => ENDED.has(run.status);
/** @param {RunSummary} run */
export const waits = (run) => WAITS.has(run.status);

/** Its status, and the groups that it belongs to. @param {RunSummary} run */
export const statesOf = (run) => [run.status, hasEnded(run) ? "ended" : "active", ...(waits(run) ? ["waiting"] : [])];

/** "H100 × 8", of all its jobs; what it asks for while it has none. @param {RunSummary} run */
export function gpuText(run) {
  const had = run.gpus.map((each) => `${each.name} × ${each.count}`).join(", ");
  return had || (run.asks_for ?? "");
}

/** "aws eu-west-1", or how many places there are. @param {RunSummary} run */
export function placeText(run) {
  const kinds = [...new Set(run.places.map((place) => (place.backend === place.region ? place.backend : `${place.backend} ${place.region}`)))];
  return kinds.length > 2 ? `${kinds.length} places` : kinds.join(", ");
}

/** The first sentence of a reason: the rest is on the run's page. @param {string} why */
export function shortWhy(why) {
  const [first] = why.split("; ");
  return first.length < why.length ? `${first} …` : first;
}

const REASONS = /** @type {Record<string, string>} */ ({ stopped_by_user: "stopped", aborted_by_user: "aborted", all_jobs_done: "", job_failed: "" });

/** Why it waits or has ended, in words; empty if there is nothing to say. @param {RunSummary} run */
export function whyText(run) {
  if (run.why) return run.why;
  if (!run.reason) return run.next_start_at && waits(run) ? "waits for its next start" : "";
  const by = run.stopped_by ? ` by ${run.stopped_by}` : "";
  const known = REASONS[run.reason];
  return known === undefined ? run.reason.replaceAll("_", " ") : known && known + by;
}

/** Everything that words without a key look through. @param {RunSummary} run */
export const allText = (run) => [run.name, run.user, run.type, run.status, run.project, gpuText(run), placeText(run), run.fleet, whyText(run)].join(" ");

/** @type {Record<string, import("./filter.js").FilterField>} */
export const RUN_FIELDS = {
  status: { kind: "is", of: statesOf, about: "running, waiting, failed, active …", values: ["active", "ended", "waiting", "running", "provisioning", "done", "failed", "terminated"] },
  user: { kind: "is", of: (run) => run.user, about: "whose it is; me", values: ["me"] },
  name: { kind: "has", of: (run) => run.name, about: "a part of its name" },
  type: { kind: "is", of: (run) => run.type, about: "task, service, dev-environment", values: ["task", "service", "dev-environment"] },
  gpu: { kind: "has", of: (run) => [...run.gpus.map((/** @type {any} */ each) => each.name), run.asks_for], about: "the GPU that it has or asks for" },
  backend: { kind: "is", of: (run) => run.places.map((/** @type {any} */ place) => place.backend), about: "where it runs" },
  region: { kind: "has", of: (run) => run.places.map((/** @type {any} */ place) => place.region), about: "where it runs" },
  fleet: { kind: "is", of: (run) => run.fleet, about: "on which it runs" },
  why: { kind: "has", of: whyText, about: "words of its reason" },
  cost: { kind: "number", of: (run) => run.cost_usd, about: "dollars in all: >5" },
  price: { kind: "number", of: (run) => run.price_per_hour_usd, about: "dollars an hour: >1" },
  age: { kind: "age", of: (run) => Date.parse(run.submitted_at), about: "since it was submitted: <2h, >1d" },
};
