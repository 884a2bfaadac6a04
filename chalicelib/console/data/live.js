// Lists of what there is, kept up to date by one feed for each project that the page shows: usually one. A hidden tab asks
// nothing, and one that nobody touches asks twice a minute where it has to ask.
import { useEffect, useState } from "../kit/preact.js";
import { KINDS, applied, costing, eventReader, noLists } from "../lib/changes.js";
import { store } from "../lib/store.js";
import { useStore } from "../kit/use_store.js";
import { call, read as readJson } from "./api.js";
import { feed } from "./feed.js";
import { session } from "./session.js";

/** @typedef {import("../types").Kind} Kind */
/** @template T @typedef {{items: T[], loading: boolean, error: any, changedAt: number}} Collection */
/** @typedef {ReturnType<typeof store<Collection<any>>>} Held */
/** @typedef {{loop: ReturnType<typeof feed>, held: Record<Kind, Held>, users: number, rest: number, tick: () => void}} Followed */

const UNUSED_MS = 30_000; // after which a feed that no page shows stops
const IDLE_AFTER_MS = 5 * 60_000;
const RESTING = 30; // seconds between the calls of one that nobody touches
const SILENT_MS = 60_000; // of a stream that shows every 20 s that it lives
const COSTS_MS = 20_000; // after which what runs cost by now is shown
const BROKEN = 2; // streams in a row of which nothing came: something on the way keeps them back, so ask instead

/** @type {Map<string | null, Followed>} */
const followed = new Map();
export const live = store(/** @type {"live" | "waiting" | "off"} */ ("off"));
let broken = 0;

/** @param {string | null} project null: all of the user's */
function follow(project) {
  const known = followed.get(project);
  if (known) return known;
  const first = () => store(/** @type {Collection<any>} */ ({ items: [], loading: true, error: null, changedAt: 0 }));
  const held = /** @type {Record<Kind, Held>} */ (Object.fromEntries(KINDS.map((kind) => [kind, first()])));
  let lists = noLists();
  const costed = /** @type {WeakMap<any, number>} */ (new WeakMap());
  const tick = () => {
    const runs = costing(lists.runs, Date.now(), costed);
    if (runs === lists.runs) return;
    lists = { ...lists, runs };
    held.runs.set({ ...held.runs.get(), items: runs });
  };
  const loop = feed({
    ask: (question) => ask(project, question),
    apply(document) {
      const before = lists;
      lists = applied(lists, document);
      if (lists.runs !== before.runs) costing(document.runs, Date.now(), costed);
      for (const kind of KINDS) {
        const was = held[kind].get();
        if (was.loading || was.error || lists[kind] !== before[kind]) held[kind].set({ items: lists[kind], loading: document.more, error: null, changedAt: Date.now() });
      }
    },
    onState(state, error) {
      if (one.users > 0) live.set(state);
      for (const kind of error ? KINDS : []) if (held[kind].get().loading) held[kind].set({ ...held[kind].get(), loading: false, error });
    },
    wait,
  });
  const one = { loop, held, users: 0, rest: 0, tick };
  followed.set(project, one);
  return one;
}

/** @param {string | null} project @param {import("./feed.js").Question} question @returns {Promise<import("./feed.js").Answer>} */
async function ask(project, { cursor, etag, signal }) {
  const headers = /** @type {Record<string, string>} */ ({ Accept: broken < BROKEN ? "text/event-stream, application/json" : "application/json" });
  if (etag) headers["If-None-Match"] = etag;
  const response = await call("GET", "v1/changes", { query: { projects: project, cursor }, headers, signal });
  if (response.status === 304) return { document: null };
  if (response.headers.get("Content-Type")?.startsWith("text/event-stream")) return { stream: (take) => read(response, take) };
  return { document: await readJson(response), etag: response.headers.get("ETag") };
}

/** Reads a stream to its end; one that falls silent is given up.
 * @param {Response} response @param {(document: import("../types").Changes) => void} take */
async function read(response, take) {
  const reader = /** @type {ReadableStream<Uint8Array>} */ (response.body).getReader();
  const decoder = new TextDecoder();
  let came = false;
  const events = eventReader((name, data) => {
    if (name !== "message") return;
    came = true;
    take(JSON.parse(data));
  });
  let timer = 0;
  const watch = () => {
    clearTimeout(timer);
    timer = window.setTimeout(() => void reader.cancel(), SILENT_MS);
  };
  try {
    for (;;) {
      watch();
      const { done, value } = await reader.read();
      if (done) return;
      events(decoder.decode(value, { stream: true }));
    }
  } finally {
    clearTimeout(timer);
    broken = came ? 0 : broken + 1;
  }
}

/** @param {number} ms @param {AbortSignal} signal @returns {Promise<void>} */
function wait(ms, signal) {
  return new Promise((resolve) => {
    if (signal.aborted) return resolve();
    const timer = setTimeout(resolve, ms);
    signal.addEventListener("abort", () => { clearTimeout(timer); resolve(); }, { once: true });
  });
}

// --- when to ask: while the tab is in sight and somebody looks ---

const inSight = () => document.visibilityState === "visible";
let touchedAt = Date.now(), idle = false;

document.addEventListener("visibilitychange", () => {
  for (const { loop, users } of followed.values()) inSight() && users > 0 ? loop.start() : loop.stop();
});
for (const kind of ["pointerdown", "pointermove", "keydown", "wheel"]) addEventListener(kind, () => { touchedAt = Date.now(); idle && setIdle(false); }, { passive: true });
setInterval(() => setIdle(Date.now() - touchedAt > IDLE_AFTER_MS), 15_000);

setInterval(() => { for (const { tick, users } of inSight() ? followed.values() : []) if (users > 0) tick(); }, COSTS_MS);

/** @param {boolean} now */
function setIdle(now) {
  if (now === idle) return;
  idle = now;
  for (const { loop } of followed.values()) loop.setIdle(now);
}

let whose = session.get().user?.id;
session.subscribe(({ user }) => {
  if (!user || user.id === whose) return;
  for (const { loop } of whose ? followed.values() : []) loop.stop();
  if (whose) followed.clear(); // another's lists aren't theirs
  whose = user.id;
});

/** @param {string | null} project */
function useFollowed(project) {
  const one = follow(project);
  useEffect(() => {
    one.users += 1;
    clearTimeout(one.rest);
    if (inSight()) one.loop.start();
    return () => {
      one.users -= 1;
      if (one.users === 0) one.rest = window.setTimeout(() => one.loop.stop(), UNUSED_MS);
    };
  }, [one]);
  return one;
}

// --- for pages ---

/**
 * @template {Kind} K
 * @param {K} kind @param {string | null} project null: of all projects
 * @returns {Collection<import("../types").Items[K]>}
 */
export function useCollection(kind, project) {
  return useStore(useFollowed(project).held[kind]);
}

/** One of them, by its id or name; the newest of that name.
 * @template {Kind} K
 * @param {K} kind @param {string | null} project @param {string} id
 * @returns {{item: import("../types").Items[K] | undefined, loading: boolean, error: any}} */
export function useItem(kind, project, id) {
  const { items, loading, error } = useCollection(kind, project);
  return { item: items.find((each) => each.id === id || each.name === id), loading, error };
}

/** Has the changes of what was just done come at once. @param {Kind} _kind @param {string | null} project */
export async function refresh(_kind, project) {
  followed.get(project)?.loop.hurry();
  followed.get(null)?.loop.hurry();
}

/** Calls `fn` now and every so many seconds, but not in a hidden tab, and twice a minute at most where nobody touches it.
 * @param {() => any} fn @param {number} seconds @param {any[]} [inputs] @param {{watched?: boolean}} [options] `watched`: also untouched it is looked at, as a log that is followed */
export function usePolling(fn, seconds, inputs = [], { watched = false } = {}) {
  const [, setTurn] = useState(0);
  useEffect(() => {
    let timer = 0, over = false, busy = false;
    const turn = async () => {
      if (busy) return;
      clearTimeout(timer);
      busy = true;
      if (inSight()) await fn();
      busy = false;
      if (!over) timer = window.setTimeout(turn, (idle && !watched ? Math.max(seconds, RESTING) : seconds) * 1000);
    };
    const shown = () => inSight() && void turn();
    document.addEventListener("visibilitychange", shown);
    void turn().then(() => !over && setTurn((number) => number + 1));
    return () => {
      over = true;
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", shown);
    };
  }, [seconds, watched, ...inputs]);
}
