// Which rows of a long list are drawn: those in sight, and a few around them.

const OVERSCAN = 5;

/** @param {number} top how far it is scrolled @param {number} height of what is seen @param {number} rowHeight @param {number} count */
export function windowOf(top, height, rowHeight, count) {
  const first = Math.max(0, Math.min(count, Math.floor(top / rowHeight)) - OVERSCAN);
  const last = Math.min(count, Math.ceil((top + height) / rowHeight) + OVERSCAN);
  return { first, last: Math.max(first, last) };
}
