// Dollars in words. Small sums keep two digits that say something; a price an hour is short.

/** @param {number} usd */
export function money(usd) {
  if (usd > 0 && usd < 0.01) return "< $0.01";
  return `${usd < 0 ? "−" : ""}$${group(Math.abs(usd).toFixed(2))}`;
}

/** @param {number} usd */
export const rate = (usd) => `$${usd > 0 && usd < 0.1 ? usd.toPrecision(2) : group(usd.toFixed(2))}/h`;

/** @param {string} digits */
const group = (digits) => digits.replace(/\B(?=(\d{3})+(?!\d))(?<!\.\d*)/g, ",");

/** A count with its noun: "1 run", "1,204 runs".
 * @param {number} count @param {string} one @param {string} [many] */
export const counted = (count, one, many = `${one}s`) => `${group(String(count))} ${count === 1 ? one : many}`;
