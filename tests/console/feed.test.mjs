import assert from "node:assert/strict";
import { test } from "node:test";

import { IDLE_MS, feed } from "../../chalicelib/console/data/feed.js";

const document = (cursor, more = {}) => ({ cursor, poll_after_ms: 5000, more: false, reset: false, ...more });

/** A server that gives these answers, then none, and a clock that stands: each pause is noted and over at once. */
function world(answers, options = {}) {
  const made = { asked: [], applied: [], states: [], pauses: [] };
  let finished;
  made.over = new Promise((resolve) => (finished = resolve));
  const left = [...answers];
  made.loop = feed({
    async ask({ cursor, etag, signal }) {
      made.asked.push([cursor, etag]);
      const next = left.shift();
      if (next === undefined) {
        finished();
        return new Promise((_, reject) => signal.addEventListener("abort", () => reject(new Error("aborted"))));
      }
      if (next instanceof Error) throw next;
      return next;
    },
    apply: (given) => made.applied.push(given.cursor),
    onState: (state) => made.states.at(-1) === state || made.states.push(state),
    async wait(ms, signal) {
      made.pauses.push(ms);
      await options.duringPause?.(made, signal);
    },
    random: () => 1,
  });
  return made;
}

test("it asks where it was, when the server says", async () => {
  const one = world([{ document: document("a", { poll_after_ms: 0, more: true }) }, { document: document("b"), etag: "tag" }, { document: null }, { document: document("c") }]);
  one.loop.start();
  await one.over;
  one.loop.stop();
  assert.deepEqual(one.asked, [[null, null], ["a", null], ["b", "tag"], ["b", "tag"], ["c", null]]);
  assert.deepEqual([one.applied, one.pauses, one.states], [["a", "b", "c"], [5000, 5000, 5000], ["live", "off"]]);
});

test("a stream is read for as long as it lasts, and then continued", async () => {
  const stream = async (take) => ["a", "b"].forEach((cursor) => take(document(cursor)));
  const one = world([{ stream }, { stream: async (take) => take(document("c")) }]);
  one.loop.start();
  await one.over;
  assert.deepEqual([one.asked.map(([cursor]) => cursor), one.applied], [[null, "b", "c"], ["a", "b", "c"]]);
});

test("after failures it waits longer each time, and says so", async () => {
  const failure = () => Object.assign(new Error("away"), { status: 0 });
  const one = world([{ document: document("a") }, ...Array.from({ length: 7 }, failure), { document: document("b") }, failure()]);
  one.loop.start();
  await one.over;
  assert.deepEqual(one.pauses, [5000, 1000, 2000, 4000, 8000, 16000, 30000, 30000, 5000, 1000]);
  assert.deepEqual(one.states, ["live", "waiting", "live", "waiting"]);
  assert.deepEqual(one.asked.at(-1), ["b", null]);
});

test("a cursor that the server doesn't know is dropped", async () => {
  const one = world([{ document: document("a"), etag: "tag" }, Object.assign(new Error("unknown"), { status: 422 }), { document: document("b", { reset: true }) }]);
  one.loop.start();
  await one.over;
  assert.deepEqual(one.asked.slice(0, 3), [[null, null], ["a", "tag"], [null, null]]);
});

test("what stopped asks nothing, and goes on where it was", async () => {
  const one = world([{ document: document("a") }]);
  one.loop.start();
  one.loop.start();
  await one.over;
  one.loop.stop();
  assert.deepEqual([one.asked.length, one.states.at(-1)], [2, "off"]);
  one.loop.start();
  await Promise.resolve();
  assert.deepEqual(one.asked.at(-1), ["a", null]);
});

test("a page that nobody touches asks twice a minute, and at once when somebody does", async () => {
  const one = world([{ document: document("a") }, { document: document("b") }], {
    duringPause(made, signal) {
      if (made.pauses.length > 1) return;
      made.loop.setIdle(false);
      assert.ok(signal.aborted);
    },
  });
  one.loop.setIdle(true);
  one.loop.start();
  await one.over;
  assert.deepEqual(one.pauses, [IDLE_MS, 5000]);
});

test("what was done shows without a pause", async () => {
  const one = world([{ document: document("a") }, { document: document("b") }]);
  one.loop.hurry();
  one.loop.start();
  await one.over;
  assert.deepEqual(one.pauses, [5000]);
});
