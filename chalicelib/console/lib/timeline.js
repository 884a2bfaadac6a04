// The stages of a job from its submission to its end, with how long each took and what ended it: made of the events of
// its run and of its machine. Events of one moment come in any order, so each stage looks for its own.
import { duration } from "./time.js";

/** @typedef {import("../types").Event} Event */
/** @typedef {{id: string, submitted_at: string, finished_at: string | null, status: string, why: string | null,
 *   reason?: string | null, instance: {id: string, name: string} | null}} JobLike */
/** @typedef {"queued" | "offer" | "boot" | "prepare" | "pull" | "start" | "running" | "stopping"} StageId */
/** @typedef {{id: StageId, title: string, from: number, to: number | null, why: string, state: "done" | "now" | "failed"}} Stage */

/** @type {Record<StageId, string>} */
const TITLES = {
  queued: "Queued", offer: "Ordering", boot: "Booting", prepare: "Preparing", pull: "Pulling image",
  start: "Starting", running: "Running", stopping: "Stopping",
};

/** @param {JobLike} job @param {Event[]} events @returns {Stage[]} without those that took no part */
export function timelineOf(job, events) {
  const moments = momentsOf(job, events);
  /** @type {[StageId, Moment | undefined][]} */
  const begun = [
    ["queued", moments.created],
    ["offer", moments.ordered],
    ["boot", moments.creating],
    ["prepare", moments.pulling && (moments.booted ?? moments.placed)],
    ["start", moments.pulling ? undefined : (moments.booted ?? moments.placed)],
    ["pull", moments.pulling],
    ["running", moments.running],
    ["stopping", moments.terminating],
  ];
  const known = begun.flatMap(([id, moment]) => (moment ? [{ id, at: moment.at, words: moment.words }] : []));
  return known.map(({ id, at }, index) => {
    const next = known[index + 1];
    const to = next ? Math.max(at, next.at) : (moments.ended?.at ?? null);
    const stopped = next?.id === "stopping" && moments.failed;
    return { id, title: TITLES[id], from: at, to, why: whyOf(id, next?.words, moments, job), state: to === null ? "now" : stopped ? "failed" : "done" };
  });
}

/** The stages of a run whose first job this is. Between attempts, and before a scheduled start, it waits.
 * @param {{status: string, submitted_at: string, next_start_at: string | null, why: string | null}} run @param {JobLike} job
 * @param {Event[]} events @returns {Stage[]} */
export function stagesOf(run, job, events) {
  if (run.status !== "pending") return timelineOf({ ...job, why: job.why ?? run.why }, events);
  const ran = events.some((event) => event.targets[0]?.type === "job" && event.after === "running");
  const from = Date.parse((ran ? job.finished_at : null) ?? run.submitted_at);
  const attempts = events.filter((event) => event.type === "resubmitted").length + 1;
  const scheduled = run.next_start_at !== null;
  const why = scheduled ? "until its next start" : `${attempts} ${attempts === 1 ? "attempt" : "attempts"} so far; the next one comes by itself`;
  return [{ id: "queued", title: scheduled ? "Scheduled" : "Waiting", from, to: null, why, state: "now" }];
}

/** Stages of several jobs over one time, in shares of it: it begins with the first of them and ends with the last.
 * @template {JobLike} J @param {{job: J, stages: Stage[]}[]} jobs @param {number} now */
export function abreast(jobs, now) {
  const all = jobs.flatMap(({ stages }) => stages);
  const from = all.reduce((first, stage) => Math.min(first, stage.from), now);
  const whole = Math.max(1, all.reduce((last, stage) => Math.max(last, stage.to ?? now), from) - from);
  const share = (/** @type {number} */ ms) => Math.round((10_000 * Math.max(0, ms)) / whole) / 100;
  return jobs.map(({ job, stages }) => ({
    job, bars: stages.map(({ id, title, state, from: begun, to }) => ({ id, title, state, ms: Math.max(0, (to ?? now) - begun), left: share(begun - from), width: share((to ?? now) - begun) })),
  }));
}

/** "14 running, 2 pulling", the most first. @param {{status: string}[]} jobs */
export function countedStates(jobs) {
  const counts = new Map();
  for (const { status } of jobs) counts.set(status, (counts.get(status) ?? 0) + 1);
  return [...counts].sort((a, b) => b[1] - a[1]).map(([status, count]) => `${count} ${status}`).join(", ");
}

/** @typedef {{at: number, words: string}} Moment */
/** @typedef {{failed: boolean} & Partial<Record<"created" | "ordered" | "placed" | "creating" | "booted" | "pulling" | "running" | "terminating" | "ended", Moment>>} Moments */

/** @param {JobLike} job @param {Event[]} events @returns {Moments} */
function momentsOf(job, events) {
  const ofJob = (/** @type {Event} */ event) => event.targets[0]?.id === job.id;
  const about = (/** @type {Event} */ event) => event.targets.some((target) => target.id === job.id);
  /** @param {(event: Event) => boolean} test @returns {Moment | undefined} */
  const find = (test) => {
    const event = events.findLast(test); // newest first: the earliest
    return event && { at: Date.parse(event.at), words: wordsOf(event) };
  };
  const to = (/** @type {string} */ status) => find((event) => ofJob(event) && event.type === "status" && event.after === status);
  const placed = to("provisioning");
  const machine = job.instance?.id ?? events.find((event) => about(event))?.targets.find((target) => target.type === "instance")?.id;
  // A machine that was there before has such events, too: those before the job was placed on it are of others' time.
  const onMachine = (/** @type {string} */ status) => placed && find((event) => event.targets[0]?.id === machine && event.type === "status"
    && event.before !== "busy" && event.after === status && Date.parse(event.at) >= placed.at);
  const ordered = find((event) => event.type === "ordered" && about(event));
  const creating = ordered && onMachine("provisioning");
  const ended = job.finished_at ? { at: Date.parse(job.finished_at), words: "" } : undefined;
  return {
    created: find((event) => ofJob(event) && (event.type === "created" || event.type === "resubmitted")) ?? { at: Date.parse(job.submitted_at), words: "" },
    ordered, placed, creating,
    booted: ordered && (onMachine("idle") ?? onMachine("busy")),
    pulling: to("pulling"), running: to("running"), terminating: to("terminating"), ended,
    failed: job.status === "failed" || job.status === "aborted" || job.status === "terminating",
  };
}

/** @param {StageId} id @param {string | undefined} words what ended it @param {Moments} moments @param {JobLike} job */
function whyOf(id, words, moments, job) {
  if (words === undefined) return moments.ended ? "" : (job.why ?? "");
  if (id === "queued" && moments.placed) return moments.placed.words || words;
  return words;
}

/** What an event says beyond the statuses, which the stages show. @param {Event} event */
export function wordsOf(event) {
  if (event.type === "status") return [event.after === "terminating" ? spaced(event.reason) : "", event.detail].filter(Boolean).join(", ");
  return event.type === "ordered" ? event.text.replace(/^ordered for [^:]+: /, "") : event.text;
}

/** @param {string | null} reason */
const spaced = (reason) => (reason ?? "").replaceAll("_", " ");

/** @typedef {{id: string, name: string, at: string, latest: boolean, number: number}} Attempt `number`: 1 for the first */
/** The attempts of a run's jobs, newest first, of which some may be known by their events alone.
 * @param {import("../types").Job[]} jobs their latest @param {Event[]} events newest first
 * @returns {Attempt[]} */
export function attemptsOf(jobs, events) {
  /** @type {Map<string, Attempt>} */
  const found = new Map(jobs.map((job) => [job.id, { id: job.id, name: job.name, at: job.submitted_at, latest: true, number: job.attempt + 1 }]));
  const before = new Map(jobs.map((job) => [job.name, job.attempt]));
  for (const event of events) {
    const target = event.targets[0];
    const begins = event.type === "created" || event.type === "resubmitted";
    if (begins && target?.type === "job" && !found.has(target.id)) {
      const number = before.get(target.name) ?? 0;
      found.set(target.id, { id: target.id, name: target.name, at: event.at, latest: false, number });
      before.set(target.name, number - 1);
    }
  }
  return [...found.values()].sort((a, b) => Date.parse(b.at) - Date.parse(a.at));
}

/** Events as marks over charts: what happened to the run and its machines, without every step.
 * @param {Event[]} events @returns {{at: number, label: string, kind: "good" | "bad" | "warn" | "calm"}[]} */
export function marksOf(events) {
  return events.flatMap((event) => {
    const kind = markKind(event);
    return kind ? [{ at: Date.parse(event.at), label: `${event.targets[0]?.name ?? ""}: ${event.text}`, kind }] : [];
  });
}

/** @param {Event} event @returns {"good" | "bad" | "warn" | "calm" | null} */
export function markKind(event) {
  if (event.type === "status") {
    if (event.after === "failed" || event.after === "aborted") return "bad";
    if (event.after === "running") return "good";
    return event.after === "terminating" ? "warn" : null;
  }
  if (event.type === "unreachable" || event.type === "failed" || event.type === "missing") return "bad";
  if (event.type === "scaled" || event.type === "changed") return "calm";
  return event.type === "health" || event.type === "resubmitted" ? "warn" : null;
}

/** A length of time with what matters of it: of less than ten seconds a tenth. @param {number} ms */
export function lasted(ms) {
  if (ms < 950) return `${Math.round(ms / 10) / 100} s`;
  if (ms < 10_000) return `${Math.round(ms / 100) / 10} s`;
  return duration(ms);
}
