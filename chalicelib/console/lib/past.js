// Travelling in time: instants of the last day, in steps, and what happened between them.

/** @typedef {import("../types").Mark} Mark */

const MINUTE = 60_000;
export const STEP = 5 * MINUTE;
export const DAY = 24 * 60 * MINUTE;
export const STEPS = DAY / STEP;
const PAGE = 12; // steps

/** The instant that an address names, within the last day; the latest where it names none.
 * @param {string | undefined} text @param {number} now */
export function instantOf(text, now) {
  const at = text ? Date.parse(text) : Number.NaN;
  return Math.max(now - DAY, Math.min(now, Number.isNaN(at) ? now : at));
}

/** As it is in an address: to the minute where it is a whole one. @param {number} at */
export function instantText(at) {
  const text = new Date(at).toISOString();
  return text.endsWith(":00.000Z") ? `${text.slice(0, 16)}Z` : text.endsWith(".000Z") ? `${text.slice(0, 19)}Z` : text;
}

/** The steps of the day that ends now: whole ones by the clock, and now itself. @param {number} now */
export function daySteps(now) {
  const last = Math.floor(now / STEP) * STEP;
  return Array.from({ length: STEPS }, (_, step) => last - (STEPS - 1 - step) * STEP).filter((at) => at >= now - DAY);
}

/** The instant of a step, or the step that is nearest before an instant. @param {number[]} steps @param {number} at */
export function stepAt(steps, at) {
  const found = steps.findLastIndex((each) => each <= at);
  return Math.max(0, found);
}

/** Where a key on the slider leads; null: the key has another meaning. @param {string} key @param {number} step @param {number} last */
export function stepFor(key, step, last) {
  const to = { PageUp: step + PAGE, PageDown: step - PAGE, Home: 0, End: last }[key];
  return to === undefined ? null : Math.max(0, Math.min(last, to));
}

/** The first instant, of those that a script has, at which something had happened: its date has microseconds, too.
 * @param {string} date */
export const afterwards = (date) => Date.parse(date) + 1;

/** The mark after an instant, or before it. @param {Mark[]} marks oldest first @param {number} at @param {1 | -1} by */
export function nextMark(marks, at, by) {
  return by > 0 ? marks.find((mark) => afterwards(mark.at) > at) : marks.findLast((mark) => afterwards(mark.at) < at);
}

/** How far along the day an instant is: 0 to 100. @param {number} at @param {number} now */
export const along = (at, now) => Math.max(0, Math.min(100, ((at - (now - DAY)) / DAY) * 100));

/** What a state is in a sentence, for the slider. @param {number} at @param {import("../types").Past | undefined} state */
export function spoken(at, state) {
  const time = `${new Date(at).toISOString().slice(11, 16)} UTC`;
  if (!state) return time;
  const counted = (/** @type {string} */ status) => state.runs.filter((run) => run.status === status).length;
  const parts = [`${counted("running")} running`, `${counted("failed")} failed`, `${state.instances.length} ${state.instances.length === 1 ? "machine" : "machines"}`];
  return `${time}, ${parts.join(", ")}`;
}
