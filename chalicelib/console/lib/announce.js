// What is said to somebody who doesn't see the lists change.
import { counted } from "./money.js";

/** @typedef {import("../types").RunSummary} RunSummary */

/** The statuses of runs, by id. @param {RunSummary[]} runs */
export const statusesOf = (runs) => new Map(runs.map((run) => [run.id, run.status]));

/** Runs whose status is another by now; those that are new count, too. @param {Map<string, string>} before @param {RunSummary[]} runs */
export const changedSince = (before, runs) => runs.filter((run) => before.get(run.id) !== run.status);

/** In one sentence, with names as long as there are few. @param {RunSummary[]} runs */
export function sentence(runs) {
  if (runs.length === 0) return "";
  if (runs.length > 3) return `${counted(runs.length, "run")} changed.`;
  return `${runs.map((run) => `${run.name} is ${run.status}`).join(", ")}.`;
}
