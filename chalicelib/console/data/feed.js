// The loop behind live lists: it asks when the server says so, or reads a stream for as long as that lasts, and goes on
// where it was after a break. It knows neither the page nor the network, so its tests need no clock.

/** @typedef {import("../types").Changes} Changes */
/** @typedef {{document: Changes | null, etag?: string | null} | {stream: (take: (document: Changes) => void) => Promise<void>}} Answer
 *   `document` null: nothing has changed */
/** @typedef {{cursor: string | null, etag: string | null, signal: AbortSignal}} Question */
/** @typedef {{ask: (question: Question) => Promise<Answer>, apply: (document: Changes) => void,
 *   onState: (state: "live" | "waiting" | "off", error?: any) => void,
 *   wait: (ms: number, signal: AbortSignal) => Promise<void>, random?: () => number}} Given
 *   `wait` ends early, without an error, when its signal is aborted */

export const IDLE_MS = 30_000; // between two questions of a page that nobody touches
const AGAIN_MS = 1_000; // after a stream's end
const FIRST_MS = 1_000, LONGEST_MS = 30_000; // of pauses after failures

/** @param {Given} given */
export function feed({ ask, apply, onState, wait, random = Math.random }) {
  let cursor = /** @type {string | null} */ (null), etag = /** @type {string | null} */ (null);
  let pollMs = 0, failures = 0, idle = false, hurried = false;
  let running = /** @type {AbortController | null} */ (null), pause = /** @type {AbortController | null} */ (null);

  /** @param {Changes} document */
  const take = (document) => {
    cursor = document.cursor;
    pollMs = document.poll_after_ms;
    failures = 0;
    apply(document);
    onState("live");
  };

  /** One question and its answer; the pause until the next. @param {AbortSignal} signal */
  const turn = async (signal) => {
    const answer = await ask({ cursor, etag, signal });
    if (signal.aborted) return 0;
    if ("stream" in answer) {
      etag = null;
      await answer.stream((document) => signal.aborted || take(document));
      return AGAIN_MS;
    }
    failures = 0;
    if (answer.document) {
      etag = answer.etag ?? null;
      take(answer.document);
    } else onState("live");
    return idle ? Math.max(pollMs, IDLE_MS) : pollMs;
  };

  /** @param {any} error */
  const failed = (error) => {
    if (error?.status === 422) cursor = etag = null; // the server doesn't know this place: begin again
    onState("waiting", error);
    const most = Math.min(LONGEST_MS, FIRST_MS * 2 ** failures++);
    return most / 2 + (random() * most) / 2;
  };

  /** @param {AbortSignal} signal */
  const loop = async (signal) => {
    while (!signal.aborted) {
      let ms = 0;
      try {
        ms = await turn(signal);
      } catch (error) {
        if (signal.aborted) return;
        ms = failed(error);
      }
      if (ms > 0 && !hurried && !signal.aborted) {
        pause = new AbortController();
        await wait(ms, AbortSignal.any([signal, pause.signal]));
        pause = null;
      }
      hurried = false;
    }
  };

  const hurry = () => {
    hurried = pause === null;
    pause?.abort();
  };
  return {
    start() {
      if (running) return;
      running = new AbortController();
      void loop(running.signal);
    },
    stop() {
      running?.abort();
      running = null;
      onState("off");
    },
    /** Ask now: something was done that will show. */
    hurry,
    /** Does nobody touch the page? @param {boolean} now */
    setIdle(now) {
      const wakes = idle && !now;
      idle = now;
      if (wakes) hurry();
    },
  };
}
