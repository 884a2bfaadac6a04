// The language of filters: `status:running user:me gpu:h100,a100 cost:>5 -type:service "words of the reason"`. Terms are joined
// by and, values by or; a minus turns a term around. Words without a key look through all that a row says.

/**
 * @typedef {{key: string | null, values: string[], not: boolean, text: string}} Term `text`: as it was written
 * @typedef {{kind: "is" | "has" | "number" | "age", of: (row: any) => any, about: string, values?: string[]}} FilterField
 *   `is`: one of the row's texts is the value; `has`: one contains it; `number` and `age` take `>` and `<`. `values`: to suggest.
 * @typedef {{fields: Record<string, FilterField>, text: (row: any) => string, me: string, now: number}} Language
 */

const TERM = /(-?)(?:([a-z_]+):)?("[^"]*"?|[^\s"]+)/gi;
const UNITS = /** @type {Record<string, number>} */ ({ s: 1, m: 60, min: 60, h: 3600, d: 86_400, w: 604_800 });

/** @param {string} text @returns {Term[]} */
export function termsOf(text) {
  return [...text.matchAll(TERM)].map(([whole, minus, key, value]) => {
    const bare = value.replaceAll('"', "");
    return { key: key?.toLowerCase() ?? null, values: key ? bare.split(",").filter(Boolean) : [bare], not: minus === "-", text: whole };
  });
}

/** What is wrong with a filter, in words; null if nothing is.
 * @param {Term[]} terms @param {Record<string, FilterField>} fields */
export function problemWith(terms, fields) {
  for (const { key, values, text } of terms) {
    if (key === null) continue;
    const field = fields[key];
    if (!field) return `“${key}:” isn’t known here. Use ${Object.keys(fields).map((each) => `${each}:`).join(", ")}, or put the words in quotes.`;
    if (values.length === 0) return `A value is missing after “${text}”.`;
    if (field.kind === "number" && values.some((value) => limitOf(value, Number) === null)) return `“${text}” needs a number, as in ${key}:>5.`;
    if (field.kind === "age" && values.some((value) => limitOf(value, secondsOf) === null)) return `“${text}” needs a length of time, as in ${key}:<2h.`;
  }
  return null;
}

/** Whether a row fits all terms. Terms with mistakes are left out. @param {Term[]} terms @param {Language} language */
export function matcher(terms, language) {
  const tests = terms.map((term) => test(term, language)).filter((each) => each !== null);
  return (/** @type {any} */ row) => tests.every((each) => each(row));
}

/** @param {Term} term @param {Language} language @returns {((row: any) => boolean) | null} */
function test({ key, values, not }, { fields, text, me, now }) {
  const wanted = values.map((value) => value.toLowerCase()).filter(Boolean);
  if (wanted.length === 0) return null;
  if (key === null) return (row) => wanted.some((value) => text(row).toLowerCase().includes(value)) !== not;
  const field = fields[key];
  if (!field) return null;
  if (field.kind === "number" || field.kind === "age") {
    const limits = wanted.map((value) => limitOf(value, field.kind === "age" ? secondsOf : Number)).filter((each) => each !== null);
    if (limits.length === 0) return null;
    const valueOf = (/** @type {any} */ row) => (field.kind === "age" ? (now - field.of(row)) / 1000 : field.of(row));
    return (row) => limits.some((limit) => limit(valueOf(row))) !== not;
  }
  const own = wanted.map((value) => (value === "me" && key === "user" ? me.toLowerCase() : value));
  const fits = field.kind === "is" ? (/** @type {string} */ a, /** @type {string} */ b) => a === b : (/** @type {string} */ a, /** @type {string} */ b) => a.includes(b);
  return (row) => textsOf(field.of(row)).some((given) => own.some((value) => fits(given, value))) !== not;
}

/** @param {any} given @returns {string[]} */
const textsOf = (given) => (Array.isArray(given) ? given : [given]).filter((each) => each !== null && each !== undefined).map((each) => String(each).toLowerCase());

/** `>5`, `<=2`, or `5`, which is at least 5. @param {string} text @param {(text: string) => number} read @returns {((value: number) => boolean) | null} */
function limitOf(text, read) {
  const [, sign = ">=", rest] = /^([<>]=?)?(.+)$/.exec(text) ?? ["", "", ""];
  const limit = rest.trim() === "" ? Number.NaN : read(rest);
  if (Number.isNaN(limit)) return null;
  return (value) => (sign === ">" ? value > limit : sign === "<" ? value < limit : sign === "<=" ? value <= limit : value >= limit);
}

/** @param {string} text */
function secondsOf(text) {
  const [, amount, unit] = /^([\d.]+)([a-z]+)$/.exec(text) ?? [];
  return amount !== undefined && unit in UNITS ? Number(amount) * UNITS[unit] : Number.NaN;
}

/** Whether a filter has a term, as written. @param {string} text @param {string} term */
export const hasTerm = (text, term) => termsOf(text).some((each) => each.text === term);

/** The filter with a term, or without it. Another one of the same key goes. @param {string} text @param {string} term */
export function toggled(text, term) {
  const [{ key }] = termsOf(term);
  const kept = termsOf(text).filter((each) => each.text !== term && (key === null || each.key !== key));
  return [...kept.map((each) => each.text), ...(hasTerm(text, term) ? [] : [term])].join(" ");
}

/** How the word before the cursor could go on: keys, or values of its key.
 * @param {string} text up to the cursor @param {Record<string, FilterField>} fields @param {any[]} rows @returns {{text: string, about: string}[]} each replaces the word */
export function suggestions(text, fields, rows) {
  const [, word = ""] = /(\S*)$/.exec(text) ?? [];
  const [, minus, key, value] = /^(-?)(?:([a-z_]+):)?([^"]*)$/i.exec(word) ?? [];
  if (minus === undefined) return [];
  if (key === undefined) {
    return Object.entries(fields)
      .filter(([name]) => name.startsWith(value.toLowerCase()))
      .map(([name, field]) => ({ text: `${minus}${name}:`, about: field.about }));
  }
  const field = fields[key.toLowerCase()];
  if (!field || field.kind === "number" || field.kind === "age") return [];
  const [last = ""] = value.split(",").slice(-1);
  const before = value.slice(0, value.length - last.length);
  const known = new Set([...(field.values ?? []), ...rows.flatMap((row) => textsOf(field.of(row)))]);
  return [...known]
    .filter((each) => each.includes(last.toLowerCase()) && each !== last && !each.includes(" "))
    .sort()
    .slice(0, 12)
    .map((each) => ({ text: `${minus}${key}:${before}${each}`, about: "" }));
}
