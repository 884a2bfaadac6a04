// The log of one job as it is read: first what there is, from the beginning so that lines have their numbers, and then
// what comes. Of a long log its end is there at once, while the rest is on its way.
import { LogLines } from "../../lib/log_lines.js";

/** @typedef {{items: import("../../types").LogLine[], next: string | null, resume: string | null}} Page */
/** @typedef {(query: Record<string, any>) => Promise<Page>} Read */

const PAGE = 1000; // pieces, the most that a page has

export class LogFeed {
  lines = new LogLines();
  /** The end of the log, while its beginning is being read. @type {LogLines | null} */
  tail = null;
  complete = false;
  /** @type {any} */ error = null;
  /** @type {string | null} */ #cursor = null;
  #reading = false;
  #over = false;

  /** @param {Read} read @param {() => void} changed @param {{tail?: boolean}} [options] `tail`: is its end wanted first? */
  constructor(read, changed, { tail = true } = {}) {
    this.read = read;
    this.changed = changed;
    this.wantsTail = tail;
  }

  /** What is shown: all lines, or those at the end. */
  get shown() {
    return this.tail ?? this.lines;
  }

  /** Reads on to the end, page by page. One call at a time. */
  async poll() {
    if (this.#reading || this.#over) return;
    this.#reading = true;
    try {
      await this.#drain();
      this.error = null;
    } catch (error) {
      this.error = error;
    } finally {
      this.#reading = false;
      if (!this.#over) this.changed();
    }
  }

  stop() {
    this.#over = true;
  }

  async #drain() {
    for (let first = !this.complete && this.lines.length === 0; !this.#over; first = false) {
      const page = await this.read({ limit: PAGE, cursor: this.#cursor });
      this.#add(this.lines, page.items);
      this.#cursor = page.next ?? page.resume ?? this.#cursor;
      if (page.next === null) break;
      if (first && this.wantsTail) await this.#readTail();
      this.changed();
    }
    this.complete = !this.#over;
    this.tail = null;
  }

  async #readTail() {
    const { items } = await this.read({ limit: PAGE, newest_first: true });
    const tail = new LogLines();
    this.#add(tail, items.reverse());
    this.tail = tail;
  }

  /** @param {LogLines} lines @param {Page["items"]} items */
  #add(lines, items) {
    for (const { at, text } of items) lines.add(at, text);
  }
}

/** The whole log as the job wrote it, piece by piece, for a file. @param {Read} read @returns {Promise<string[]>} */
export async function wholeLog(read) {
  const parts = [];
  let cursor = null;
  do {
    const page = /** @type {Page} */ (await read({ limit: PAGE, cursor }));
    parts.push(...page.items.map((item) => item.text));
    cursor = page.next;
  } while (cursor);
  return parts;
}
