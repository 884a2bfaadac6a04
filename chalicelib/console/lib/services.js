// What a service's numbers mean, in words.

/** @typedef {import("../types").Service} Service */
/** @typedef {Service["groups"][number]} Group */
/** @typedef {Service["replicas"][number]} Replica */

const STEP = 10; // seconds that each count of requests is about
const ENDED = ["terminated", "aborted", "failed", "done"];

/** @param {Replica} replica */
export const isLive = (replica) => !ENDED.includes(replica.status);
/** @param {Replica} replica */
export const isReady = (replica) => replica.status === "running" && replica.ready_at !== null && replica.draining_at === null;

/** What a replica does, as a status: ready and draining are no statuses of its job. @param {Replica} replica */
export function standing(replica) {
  if (!isLive(replica) || replica.status === "terminating") return replica.status;
  if (replica.draining_at !== null) return "draining";
  return isReady(replica) ? "ready" : replica.status === "running" ? "loading" : replica.status;
}

/** @param {Service} service @param {string} [group] */
export const readyOf = (service, group) => service.replicas.filter((replica) => isReady(replica) && (group === undefined || replica.group === group)).length;

/** @param {Service} service */
export const desiredOf = (service) => service.groups.reduce((sum, group) => sum + group.desired, 0);

/** The last minute's traffic: requests a second, requests under way on average, and how long one takes, by Little's law.
 * @param {Service} service @param {number} now in milliseconds */
export function lastMinute(service, now) {
  const recent = service.traffic.items.filter((item) => now - Date.parse(item.at) <= 60_000 + STEP * 1000);
  const requests = recent.reduce((sum, item) => sum + item.requests, 0);
  const busy = recent.reduce((sum, item) => sum + item.busy, 0) / (60 / STEP);
  return { rate: requests / 60, busy, seconds: requests > 0 ? (busy * 60) / requests : null };
}

/** Counts of requests as points of a chart, a second each; steps that were left out had none. They join those that are known.
 * @param {Map<number, {requests: number, busy: number}>} known @param {Service["traffic"]["items"]} items @param {number} since */
export function remembered(known, items, since) {
  const found = new Map([...known].filter(([at]) => at >= since));
  for (const item of items) found.set(Date.parse(item.at), { requests: item.requests, busy: item.busy });
  return found;
}

const SHARES = /** @type {const} */ (["p50", "p95", "p99"]);
const HALF_MINUTE = 30_000; // that each histogram is about

/** How long answers took, as lines of a chart; a step without one is a gap. What is known is remembered in `known`.
 * @param {Map<number, any>} known @param {Service["traffic"]["answers"]} answers @param {"first_byte" | "whole"} kind @param {number} from @param {number} to */
export function times(known, answers, kind, from, to) {
  for (const each of answers) known.set(Date.parse(each.at), each);
  for (const at of known.keys()) if (at < from) known.delete(at);
  /** @type {number[]} */
  const steps = [];
  for (let at = Math.ceil(from / HALF_MINUTE) * HALF_MINUTE; at <= to; at += HALF_MINUTE) steps.push(at);
  return SHARES.map((label) => ({ label, points: steps.map((at) => /** @type {[number, number | null]} */ ([at, known.get(at)?.[kind]?.[label] ?? null])) }));
}

/** @param {ReturnType<typeof times>} series */
export const greatest = (series) => Math.max(...series.flatMap((line) => line.points.map(([, value]) => (value ?? 0) * 1.1))) || 1;
/** @param {Service["traffic"]["whole"]} found */
export const shares = (found) => (found ? SHARES.map((label) => `${label} ${duration(found[label])}`) : null);
/** @param {number} value in seconds */
export const duration = (value) => (value < 1 ? `${Math.round(value * 1000)} ms` : `${number(value)} s`);

/** @param {Map<number, {requests: number, busy: number}>} known @param {number} from @param {number} to in milliseconds
 * @returns {{rate: [number, number][], busy: [number, number][]}} */
export function points(known, from, to) {
  const step = STEP * 1000;
  /** @type {[number, number][]} */
  const rate = [], /** @type {[number, number][]} */ busy = [];
  for (let at = Math.ceil(from / step) * step; at <= to - step; at += step) {
    const found = known.get(at);
    rate.push([at, (found?.requests ?? 0) / STEP]);
    busy.push([at, found?.busy ?? 0]);
  }
  return { rate, busy };
}

/** How many replicas a group should have, and by which rule. @param {Group} group */
export function ruleOf(group) {
  if (!group.scaling) return group.fewest === group.most ? `Always ${replicas(group.most)}.` : `${group.fewest} to ${replicas(group.most)}.`;
  const { metric, target, window_seconds: window } = group.scaling;
  const load = metric === "rps" ? `${number(target)} requests a second` : `${number(target)} requests under way or waiting`;
  return `${group.fewest} to ${replicas(group.most)}: one for every ${load}, averaged over ${seconds(window)}.`;
}

/** The last decision, in words. @param {Group} group */
export function decisionOf(group) {
  if (!group.scaling) return null;
  const should = group.desired === 0 ? "None now" : `${replicas(group.desired)} now`;
  return group.why ? `${should}: ${group.why}.` : `${should}.`;
}

/** When the number may change next, if a delay of its rule isn't over. @param {Group} group @param {number} now */
export function nextChanges(group, now) {
  if (!group.scaling || !group.changed_at) return [];
  const changed = Date.parse(group.changed_at);
  const up = changed + group.scaling.scale_up_delay_seconds * 1000, down = changed + group.scaling.scale_down_delay_seconds * 1000;
  return [
    ...(group.desired < group.most && up > now ? [{ what: "More at the earliest", at: up }] : []),
    ...(group.desired > group.fewest && down > now ? [{ what: "Fewer at the earliest", at: down }] : []),
  ];
}

/** Which replicas run which revision of the spec, the newest first. @param {Service} service */
export function rollout(service) {
  const live = service.replicas.filter(isLive);
  const numbers = [...new Set([service.revision, ...live.map((replica) => replica.revision)])].sort((one, two) => two - one);
  return numbers.map((revision) => {
    const own = live.filter((replica) => replica.revision === revision);
    return { revision, current: revision === service.revision, total: own.length, ready: own.filter(isReady).length, draining: own.filter((replica) => replica.draining_at !== null).length };
  });
}

/** Are there replicas of an older revision, or fewer ready ones than there should be? @param {Service} service */
export const isRolling = (service) => rollout(service).some((part) => !part.current && part.total > 0);

/** @param {number} count */
const replicas = (count) => `${count} ${count === 1 ? "replica" : "replicas"}`;
/** @param {number} length */
const seconds = (length) => (length % 60 === 0 ? `${length / 60} min` : `${length} s`);
/** @param {number} value */
export const number = (value) => (value >= 100 ? String(Math.round(value)) : String(Math.round(value * 100) / 100));

/** The whole address, if the service is at the server itself. @param {string} url @param {string} base */
export const addressOf = (url, base) => new URL(url.replace(/^\//, ""), url.startsWith("/") ? base : undefined).href;
