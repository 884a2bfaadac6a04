// Finding by a few letters: what the palette looks through.

/** How well a text has the letters of a query, in their order; null if it hasn't. Higher is better.
 * @param {string} query @param {string} text */
export function score(query, text) {
  const asked = query.toLowerCase(), given = text.toLowerCase();
  if (!asked) return 0;
  const at = given.indexOf(asked);
  if (at >= 0) return 100 - at - given.length / 100 + (at === 0 || !/[a-z0-9]/.test(given[at - 1]) ? 50 : 0);
  let from = 0, gaps = 0;
  for (const letter of asked) {
    const next = given.indexOf(letter, from);
    if (next < 0) return null;
    gaps += next - from;
    from = next + 1;
  }
  return 20 - gaps - given.length / 100;
}

/** The best of them, best first.
 * @template T
 * @param {string} query @param {T[]} entries @param {(entry: T) => string} textOf @param {number} most */
export function best(query, entries, textOf, most) {
  return entries
    .map((entry, at) => ({ entry, at, score: score(query.trim(), textOf(entry)) }))
    .filter((each) => each.score !== null)
    .sort((one, two) => /** @type {number} */ (two.score) - /** @type {number} */ (one.score) || one.at - two.at)
    .slice(0, most)
    .map((each) => each.entry);
}
