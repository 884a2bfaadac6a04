// Which rows of a long list are drawn: those in sight, and a few around them; and which elements of the page show them.

const OVERSCAN = 3;

/** @param {number} top how far it is scrolled @param {number} height of what is seen @param {number} rowHeight @param {number} count */
export function windowOf(top, height, rowHeight, count) {
  const first = Math.max(0, Math.min(count, Math.floor(top / rowHeight)) - OVERSCAN);
  const last = Math.min(count, Math.ceil((top + height) / rowHeight) + OVERSCAN);
  return { first, last: Math.max(first, last) };
}

/** Which element shows which row: rows that stay keep theirs, others get what has become free. If fewer than half stay, all
 * change in place: texts that change cost less than elements that move.
 * @param {Map<string, number>} was by the keys of the rows @param {string[]} keys @returns {Map<string, number>} */
export function slotsOf(was, keys) {
  const stay = keys.filter((key) => was.has(key)), kept = new Map(stay.length * 2 < keys.length ? [] : stay.map((key) => [key, was.get(key)]));
  const taken = new Set(kept.values()), free = [...was.values()].filter((slot) => !taken.has(slot));
  let fresh = Math.max(-1, ...was.values()) + 1; // not the number of them: those that are left can have any
  return new Map(keys.map((key) => [key, /** @type {number} */ (kept.get(key) ?? free.shift() ?? fresh++)]));
}
