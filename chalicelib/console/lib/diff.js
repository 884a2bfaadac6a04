// The difference of two texts, line by line: the fewest lines that go and come.

/** @typedef {{kind: "same" | "gone" | "new", text: string, before: number | null, after: number | null}} DiffLine */

/** @param {string} before @param {string} after @returns {DiffLine[]} */
export function lineDiff(before, after) {
  const [old, young] = [linesOf(before), linesOf(after)];
  const longest = commonLengths(old, young);
  /** @type {DiffLine[]} */
  const found = [];
  let [at, to] = [0, 0];
  while (at < old.length || to < young.length) {
    if (at < old.length && to < young.length && old[at] === young[to]) {
      found.push({ kind: "same", text: /** @type {string} */ (old[at]), before: ++at, after: ++to });
    } else if (to >= young.length || (at < old.length && cell(longest, at + 1, to) >= cell(longest, at, to + 1))) {
      found.push({ kind: "gone", text: /** @type {string} */ (old[at]), before: ++at, after: null });
    } else {
      found.push({ kind: "new", text: /** @type {string} */ (young[to]), before: null, after: ++to });
    }
  }
  return found;
}

/** Only what changed, with a few lines around it; null stands for lines that are left out.
 * @param {DiffLine[]} lines @param {number} [around] @returns {(DiffLine | null)[]} */
export function changesOnly(lines, around = 3) {
  const near = lines.map((_, index) => lines.slice(Math.max(0, index - around), index + around + 1).some((line) => line.kind !== "same"));
  return lines.flatMap((line, index) => (near[index] ? [line] : near[index - 1] || index === 0 ? [null] : []));
}

/** @param {string} text */
const linesOf = (text) => (text === "" ? [] : text.replace(/\n$/, "").split("\n"));

// The lengths of the longest common subsequences of what follows each pair of places.
/** @param {string[]} old @param {string[]} young */
function commonLengths(old, young) {
  const rows = Array.from({ length: old.length + 1 }, () => new Uint16Array(young.length + 1));
  for (let at = old.length - 1; at >= 0; at--) {
    const row = /** @type {Uint16Array} */ (rows[at]);
    for (let to = young.length - 1; to >= 0; to--) {
      row[to] = old[at] === young[to] ? cell(rows, at + 1, to + 1) + 1 : Math.max(cell(rows, at + 1, to), cell(rows, at, to + 1));
    }
  }
  return rows;
}

/** @param {Uint16Array[]} rows @param {number} at @param {number} to */
const cell = (rows, at, to) => rows[at]?.[to] ?? 0;
