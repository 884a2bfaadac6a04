// The lines of a log: made of pieces as they come, numbered from 1, searched, and found by their height on the screen.
// Only lines in sight are parsed for colours; of the others the text, the date and the style they begin with are kept.

import { PLAIN, SHOWN, plain, styleAfter } from "./ansi.js";

/** @typedef {import("./ansi.js").Style} Style */
/** @typedef {{number: number, at: string, raw: string, style: Readonly<Style>}} Line */

const MOST_LINES = 200_000;
const MOST_CHARACTERS = 64_000_000;
const DROPPED = 0.1; // of the lines at once, when there are too many

export class LogLines {
  /** @type {string[]} */ #raw = [];
  /** @type {string[]} */ #at = [];
  /** @type {Readonly<Style>[]} */ #styles = [];
  /** @type {number[]} */ #widths = [];
  #characters = 0;
  #open = false; // has the last line no end yet?
  /** @type {Readonly<Style>} */ #style = PLAIN;

  /** How many lines at the beginning are no longer here. */
  dropped = 0;

  /** @param {{lines?: number, characters?: number}} [most] */
  constructor({ lines = MOST_LINES, characters = MOST_CHARACTERS } = {}) {
    this.mostLines = lines;
    this.mostCharacters = characters;
  }

  /** How many lines are here. */
  get length() {
    return this.#raw.length;
  }

  /** The number of the first line that is here. */
  get first() {
    return this.dropped + 1;
  }

  /** The number of the last one. */
  get last() {
    return this.dropped + this.length;
  }

  /** Adds a piece of output, which may begin and end within a line.
   * @param {string} at @param {string} text */
  add(at, text) {
    const parts = text.split("\n");
    parts.forEach((part, index) => {
      const ended = index < parts.length - 1;
      if (index === 0 && this.#open) this.#grow(part);
      else if (part !== "" || ended) this.#begin(at, part);
      else return;
      this.#open = !ended;
      if (ended) this.#end();
    });
    if (this.length > this.mostLines || this.#characters > this.mostCharacters) this.#drop();
  }

  /** @param {string} at @param {string} raw */
  #begin(at, raw) {
    this.#raw.push(raw);
    this.#at.push(at);
    this.#styles.push(this.#style);
    this.#widths.push(-1);
    this.#characters += raw.length;
  }

  /** @param {string} more */
  #grow(more) {
    const last = this.length - 1;
    this.#raw[last] += more;
    this.#widths[last] = -1;
    this.#characters += more.length;
  }

  #end() {
    const last = this.length - 1;
    const raw = /** @type {string} */ (this.#raw[last]);
    this.#style = styleAfter(raw, /** @type {Readonly<Style>} */ (this.#styles[last]));
    if (raw.endsWith("\r")) this.#raw[last] = raw.slice(0, -1);
  }

  #drop() {
    let count = 0;
    const lines = this.length - Math.floor(this.mostLines * (1 - DROPPED));
    const wanted = Math.floor(this.mostCharacters * (1 - DROPPED));
    while (count < this.length - 1 && (count < lines || this.#characters > wanted)) {
      this.#characters -= /** @type {string} */ (this.#raw[count++]).length;
    }
    for (const list of [this.#raw, this.#at, this.#styles, this.#widths]) list.splice(0, count);
    this.dropped += count;
  }

  /** @param {number} index @returns {Line} */
  line(index) {
    return {
      number: this.first + index,
      at: this.#at[index] ?? "",
      raw: this.#raw[index] ?? "",
      style: this.#styles[index] ?? PLAIN,
    };
  }

  /** The lines of a window, which is by index. @param {number} from @param {number} to */
  window(from, to) {
    const found = [];
    for (let index = Math.max(0, from); index < Math.min(to, this.length); index++) found.push(this.line(index));
    return found;
  }

  /** The index of a line by its number; the nearest there is. @param {number} number */
  indexOf(number) {
    return Math.max(0, Math.min(this.length - 1, number - this.first));
  }

  /** The text of a line as readers see it. @param {number} index */
  text(index) {
    return plain(this.#raw[index] ?? "");
  }

  /** How many cells of a terminal the shown part of a line takes. @param {number} index */
  width(index) {
    const known = this.#widths[index] ?? 0;
    if (known >= 0) return known;
    const width = cells(plain((this.#raw[index] ?? "").slice(0, SHOWN)));
    if (index < this.length - 1 || !this.#open) this.#widths[index] = width;
    return width;
  }

  /** The numbers of the lines that contain a text, from an index on. @param {Query} query @param {number} [from] */
  matches(query, from = 0) {
    const found = [];
    for (let index = from; index < this.length; index++) if (query.in(this.text(index))) found.push(this.first + index);
    return found;
  }
}

const WIDE = /[\u1100-\u115f\u2e80-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60\uffe0-\uffe6]|[\u{1f300}-\u{1f64f}\u{1f900}-\u{1f9ff}\u{20000}-\u{3fffd}]/gu;

/** @param {string} text */
function cells(text) {
  if (!/[^\u0020-\u007e]/.test(text)) return text.length;
  let width = 0;
  for (const char of text.replace(WIDE, "xx")) width += char === "\t" ? 8 - (width % 8) : 1;
  return width;
}

/** What is searched for: a text; with a capital letter in it the case counts. */
export class Query {
  #expression;

  /** @param {string} text */
  constructor(text) {
    this.text = text;
    const flags = /\p{Lu}/u.test(text) ? "g" : "gi";
    this.#expression = new RegExp(text.replace(/[\\^$.*+?()[\]{}|]/g, "\\$&"), flags);
  }

  /** @param {string} line */
  in(line) {
    this.#expression.lastIndex = 0;
    return this.text !== "" && this.#expression.test(line);
  }

  /** Where it is in a line. @param {string} line @returns {[number, number][]} */
  places(line) {
    if (this.text === "") return [];
    return [...line.matchAll(this.#expression)].map((match) => [match.index, match.index + match[0].length]);
  }
}

/** Spans cut at the places of what was searched for. @param {import("./ansi.js").Span[]} spans @param {Query | null} query
 * @returns {{text: string, classes: string, found: boolean}[]} */
export function marked(spans, query) {
  const places = query?.places(spans.map((span) => span.text).join("")) ?? [];
  const parts = [];
  let start = 0;
  let next = 0;
  for (const { text, classes } of spans) {
    let place = 0;
    while (place < text.length) {
      while (next < places.length && /** @type {[number, number]} */ (places[next])[1] <= start + place) next++;
      const [low, high] = places[next] ?? [Infinity, Infinity];
      const found = low <= start + place;
      const end = Math.min(text.length, (found ? high : low) - start);
      parts.push({ text: text.slice(place, end), classes, found });
      place = end;
    }
    start += text.length;
  }
  return parts;
}

/** The match after a line, or before it; around the end. @param {number[]} matches line numbers in order @param {number} current
 * @param {1 | -1} step */
export function nextMatch(matches, current, step) {
  if (matches.length === 0) return null;
  const found = step > 0 ? matches.find((number) => number > current) : matches.findLast((number) => number < current);
  return found ?? (step > 0 ? matches[0] : matches[matches.length - 1]) ?? null;
}

/** The rows of a list whose lines take one or several rows: where each begins. Only what is new or changed is counted. */
export class Rows {
  /** @type {number[]} */ #starts = [0];
  #columns = 0;
  #first = 1;

  /** @param {LogLines} lines @param {number} columns of a row; 0: lines aren't wrapped @param {number[] | null} [only] indices */
  fit(lines, columns, only = null) {
    const count = only ? only.length : lines.length;
    const anew = columns !== this.#columns || lines.first !== this.#first || only !== null;
    const kept = anew ? 0 : Math.max(0, Math.min(this.#starts.length - 2, count - 1)); // the last line may have grown
    this.#starts.length = kept + 1;
    for (let row = kept; row < count; row++) {
      const width = columns ? lines.width(only ? /** @type {number} */ (only[row]) : row) : 0;
      this.#starts.push(/** @type {number} */ (this.#starts[row]) + Math.max(1, columns ? Math.ceil(width / columns) : 1));
    }
    this.#columns = columns;
    this.#first = only ? -1 : lines.first;
  }

  get total() {
    return /** @type {number} */ (this.#starts[this.#starts.length - 1]);
  }

  get count() {
    return this.#starts.length - 1;
  }

  /** The row at which an entry begins. @param {number} entry */
  start(entry) {
    return this.#starts[Math.max(0, Math.min(entry, this.count))] ?? 0;
  }

  /** The entry that is at a row. @param {number} row */
  at(row) {
    let low = 0;
    let high = this.count;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (/** @type {number} */ (this.#starts[middle + 1]) > row) high = middle;
      else low = middle + 1;
    }
    return Math.min(low, Math.max(0, this.count - 1));
  }
}

/** The lines that an address names: "120" or "120-130". @param {string | undefined} text @returns {{from: number, to: number} | null} */
export function linesOf(text) {
  const match = /^(\d{1,9})(?:-(\d{1,9}))?$/.exec(text ?? "");
  if (!match) return null;
  const [low, high] = [Number(match[1]), Number(match[2] ?? match[1])];
  return low < 1 || high < 1 ? null : { from: Math.min(low, high), to: Math.max(low, high) };
}

/** The address of lines, after a click on one of them, with the shift key or without.
 * @param {{from: number, to: number} | null} current @param {number} number @param {boolean} extended */
export function linkOf(current, number, extended) {
  if (!extended || !current) return String(number);
  const [low, high] = [Math.min(current.from, number), Math.max(current.from, number)];
  return low === high ? String(low) : `${low}-${high}`;
}
