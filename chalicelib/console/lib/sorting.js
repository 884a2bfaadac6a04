/** @typedef {{key: string, down: boolean}} Sort */

/**
 * Rows in the order of a value: texts as people sort them (run-2 before run-10), and what has none last in both directions.
 * @template R
 * @param {R[]} rows @param {(row: R) => any} value @param {boolean} down
 */
export function sorted(rows, value, down) {
  const collator = new Intl.Collator("en", { numeric: true, sensitivity: "base" });
  const sign = down ? -1 : 1;
  const keyed = rows.map((row, at) => ({ row, at, key: value(row) }));
  keyed.sort((one, two) => {
    const a = one.key, b = two.key;
    const noneA = a === null || a === undefined || a === "" || Number.isNaN(a), noneB = b === null || b === undefined || b === "" || Number.isNaN(b);
    if (noneA || noneB) return noneA && noneB ? one.at - two.at : noneA ? 1 : -1;
    const order = typeof a === "number" && typeof b === "number" ? a - b : collator.compare(String(a), String(b));
    return sign * order || one.at - two.at;
  });
  return keyed.map((each) => each.row);
}

/** @param {string | undefined} text `-cost` or `name`, as in an address @param {Sort} usual @returns {Sort} */
export function sortOf(text, usual) {
  if (!text) return usual;
  return text.startsWith("-") ? { key: text.slice(1), down: true } : { key: text, down: false };
}

/** @param {Sort} sort */
export const sortText = ({ key, down }) => (down ? `-${key}` : key);
