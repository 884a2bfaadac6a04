// Costs for a chart and a table: the most expensive by name and the rest together, in every step of the time.

/** @typedef {import("../types").Costs} Costs */
/** @typedef {import("../types").CostSeries} CostSeries */
/** @typedef {{name: string, index: number, usd: number, idle: number}} Part of a step; `index`: of its colour, -1 for idle time of nobody's */
/** @typedef {{at: number, usd: number, idle: number, parts: Part[]}} Step */

const HOUR = 3_600_000, DAY = 24 * HOUR;
const COLOURS = 8;
export const REST = "everything else";

/** What a series is called. @param {string | null} name @param {Costs["by"]} by */
export const titleOf = (name, by) => name ?? (by === "user" ? "idle" : "no GPU");

/** How much of it was idle, as text. @param {{usd: number, idle_usd: number, gpu_hours: number, idle_gpu_hours: number}} amount */
export function idleShare({ usd, idle_usd, gpu_hours, idle_gpu_hours }) {
  const [part, whole] = usd > 0 ? [idle_usd, usd] : [idle_gpu_hours, gpu_hours];
  return whole > 0 ? `${Math.round((100 * part) / whole)} %` : "–";
}

/** The series that a chart shows, the rest of them as one. @param {Costs} costs @returns {CostSeries[]} */
export function charted(costs) {
  const own = costs.items.filter((item) => item.usd > 0);
  if (own.length <= COLOURS) return own;
  const rest = own.slice(COLOURS - 1);
  const steps = rest.flatMap((item) => item.steps);
  const sum = (/** @type {"usd" | "idle_usd" | "gpu_hours" | "idle_gpu_hours"} */ key) => rest.reduce((total, item) => total + item[key], 0);
  const amounts = { usd: sum("usd"), idle_usd: sum("idle_usd"), gpu_hours: sum("gpu_hours"), idle_gpu_hours: sum("idle_gpu_hours") };
  return [...own.slice(0, COLOURS - 1), { name: REST, ...amounts, steps }];
}

/** Every step of the time up to now, those that cost nothing included. @param {Costs} costs @param {number} now @returns {Step[]} */
export function stepsOf(costs, now) {
  const width = costs.step === "day" ? DAY : HOUR, begin = Date.parse(costs.since), end = Math.min(Date.parse(costs.until), now);
  const series = charted(costs), found = /** @type {Step[]} */ ([]);
  for (let at = begin; at < end; at += width) found.push({ at, usd: 0, idle: 0, parts: [] });
  let colour = 0;
  for (const { name, steps } of series) {
    const index = name === null && costs.by === "user" ? -1 : colour++;
    const title = titleOf(name, costs.by);
    for (const step of steps) {
      const of = found[Math.floor((Date.parse(step.at) - begin) / width)];
      if (!of) continue;
      const part = of.parts.find((each) => each.name === title) ?? add(of, { name: title, index, usd: 0, idle: 0 });
      part.usd += step.usd;
      part.idle += step.idle_usd;
      of.usd += step.usd;
      of.idle += step.idle_usd;
    }
  }
  return found;
}

/** @param {Step} step @param {Part} part */
function add(step, part) {
  step.parts.push(part);
  return part;
}

/** The lines of a scale from 0 to at least this: three to five, at round numbers. @param {number} most */
export function scaleOf(most) {
  if (most <= 0) return [0, 1];
  const rough = most / 4, power = 10 ** Math.floor(Math.log10(rough));
  const unit = power * (/** @type {number[]} */ ([1, 2, 2.5, 5, 10]).find((each) => each * power >= rough) ?? 10);
  return Array.from({ length: Math.ceil(most / unit - 1e-9) + 1 }, (_, number) => Number((number * unit).toPrecision(6)));
}

/** The steps whose labels are written below the bars, so that they don't touch. @param {number} count @param {number} most */
export const labelled = (count, most) => (/** @type {number} */ at) => (count - 1 - at) % Math.max(1, Math.ceil(count / most)) === 0;

/** A day, or an hour, in UTC: as everything is counted. @param {number} at @param {Costs["step"]} step */
export function stepText(at, step) {
  const date = new Date(at);
  if (step === "hour") return `${String(date.getUTCHours()).padStart(2, "0")}:00`;
  return date.toLocaleDateString("en", { day: "numeric", month: "short", timeZone: "UTC" });
}
