// Times in words: relative ones for reading, exact ones for quoting.

const SECOND = 1000, MINUTE = 60 * SECOND, HOUR = 60 * MINUTE, DAY = 24 * HOUR;

/** A length of time in its two largest units: "3 h 02 min".
 * @param {number} ms */
export function duration(ms) {
  const length = Math.max(0, ms);
  if (length < MINUTE) return `${Math.floor(length / SECOND)} s`;
  if (length < HOUR) return `${Math.floor(length / MINUTE)} min${rest((length % MINUTE) / SECOND, "s", length < 10 * MINUTE)}`;
  if (length < DAY) return `${Math.floor(length / HOUR)} h${rest((length % HOUR) / MINUTE, "min", true)}`;
  return `${Math.floor(length / DAY)} d${rest((length % DAY) / HOUR, "h", length < 10 * DAY)}`;
}

/** @param {number} amount @param {string} unit @param {boolean} shown */
function rest(amount, unit, shown) {
  const whole = Math.floor(amount);
  return shown && whole > 0 ? ` ${whole} ${unit}` : "";
}

/** How long ago, or how soon, in one unit: "3 h ago".
 * @param {number} at @param {number} now */
export function ago(at, now) {
  const past = now - at;
  if (Math.abs(past) < 5 * SECOND) return "just now";
  const text = inOneUnit(Math.abs(past));
  return past > 0 ? `${text} ago` : `in ${text}`;
}

/** @param {number} ms */
export function inOneUnit(ms) {
  if (ms < MINUTE) return `${Math.floor(ms / SECOND)} s`;
  if (ms < HOUR) return `${Math.floor(ms / MINUTE)} min`;
  if (ms < 2 * DAY) return `${Math.floor(ms / HOUR)} h`;
  return `${Math.floor(ms / DAY)} d`;
}

/** The exact moment in UTC: "2026-11-28 03:10:07 UTC".
 * @param {number} at */
export const utc = (at) => `${new Date(at).toISOString().slice(0, 19).replace("T", " ")} UTC`;

const LOCAL = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" }); // slow to make

/** The moment for a title: in UTC and where the reader is.
 * @param {number} at */
export const exact = (at) => `${utc(at)}\n${LOCAL.format(at)} local time`;

/** The milliseconds of what the API calls a moment; NaN if it is none.
 * @param {string | number | null | undefined} text */
export const millis = (text) => (typeof text === "number" ? text : text ? Date.parse(text) : Number.NaN);
