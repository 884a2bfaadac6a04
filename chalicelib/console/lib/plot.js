// The geometry of charts: scales at round numbers, moments of an axis, and the line through points.

/** @typedef {[number, number | null]} Point a moment in milliseconds, and the value there */

const SECOND = 1000, MINUTE = 60 * SECOND, HOUR = 60 * MINUTE, DAY = 24 * HOUR;
const MOMENTS = [...[1, 2, 5, 10, 15, 30].map((each) => each * SECOND), ...[1, 2, 5, 10, 15, 30].map((each) => each * MINUTE), ...[1, 2, 3, 6, 12].map((each) => each * HOUR), ...[1, 2, 7, 14, 28].map((each) => each * DAY)];

/** The lines of a scale from 0 to at least this: three to five, at round numbers. @param {number} most @param {boolean} [binary] of bytes */
export function scaleOf(most, binary = false) {
  if (most <= 0) return [0, 1];
  const rough = most / 4, power = 10 ** Math.floor(Math.log10(rough));
  const unit = binary ? 2 ** Math.ceil(Math.log2(rough)) : power * (/** @type {number[]} */ ([1, 2, 2.5, 5, 10]).find((each) => each * power >= rough) ?? 10);
  return Array.from({ length: Math.ceil(most / unit - 1e-9) + 1 }, (_, number) => Number((number * unit).toPrecision(binary ? 15 : 6)));
}

/** Round moments from one to another, not more than this. @param {number} from @param {number} to @param {number} most
 * @param {number} offset of local time, in milliseconds: what is added to get UTC */
export function momentsOf(from, to, most, offset) {
  const step = MOMENTS.find((each) => (to - from) / each <= most) ?? (to - from) / most;
  const first = Math.ceil((from - offset) / step) * step + offset;
  return Array.from({ length: Math.max(0, Math.floor((to - first) / step) + 1) }, (_, number) => first + number * step);
}

/** The line through points, as a path. Where there is no value it ends. Of many points in a pixel, the least and the most are enough.
 * @param {Point[]} points @param {(at: number) => number} x @param {(value: number) => number} y */
export function pathOf(points, x, y) {
  let path = "", drawn = false, column = Number.NaN, low = 0, high = 0, last = 0;
  const flush = () => {
    for (const value of low === high ? [] : last === low ? [high, low] : [low, ...(last === high ? [high] : [high, last])]) path += `L${column} ${value}`;
  };
  for (const [at, value] of points) {
    const here = Math.round(x(at)), there = value === null ? null : Math.round(y(value) * 10) / 10;
    if (here === column && there !== null && drawn) {
      [low, high, last] = [Math.min(low, there), Math.max(high, there), there];
      continue;
    }
    if (drawn) flush();
    if (there === null) {
      drawn = false;
      continue;
    }
    path += drawn ? `L${here} ${there}` : `M${here} ${there}h0`; // a lone point is a dot
    [drawn, column, low, high, last] = [true, here, there, there, there];
  }
  if (drawn) flush();
  return path;
}

/** The place of what is nearest to a moment, of moments in order; -1 of none. @param {number[]} times @param {number} at */
export function nearest(times, at) {
  let low = 0, high = times.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (/** @type {number} */ (times[middle]) < at) low = middle + 1;
    else high = middle;
  }
  const [before, after] = [times[low - 1], times[low]];
  return before !== undefined && after !== undefined && at - before <= after - at ? low - 1 : high;
}
