import assert from "node:assert/strict";
import { test } from "node:test";

import { KINDS, applied, costing, eventReader, noLists } from "../../chalicelib/console/lib/changes.js";

const none = () => Object.fromEntries(KINDS.map((kind) => [kind, []]));
const document = (changes) => ({ reset: false, more: false, cursor: "1", poll_after_ms: 0, ...none(), ...changes, removed: { ...none(), ...changes.removed } });
const run = (id, day, more = {}) => ({ id, name: id, submitted_at: `2026-11-0${day}T00:00:00+00:00`, ...more });
const ids = (items) => items.map((item) => item.id).join(" ");

test("new things are where they belong, newest first", () => {
  const lists = applied(noLists(), document({ runs: [run("b", 2), run("a", 1)] }));
  assert.equal(ids(lists.runs), "b a");
  assert.equal(ids(applied(lists, document({ runs: [run("c", 3), run("d", 1)] })).runs), "c b d a");
});

test("what didn't change stays what it was", () => {
  const lists = applied(noLists(), document({ runs: [run("b", 2), run("a", 1)], fleets: [{ id: "f", created_at: "1" }] }));
  const again = applied(lists, document({ runs: [run("a", 1)], removed: { runs: ["gone long ago"] } }));
  assert.equal(again.runs, lists.runs);
  const after = applied(lists, document({ runs: [run("a", 1, { status: "done" })] }));
  assert.equal(after.runs[0], lists.runs[0]);
  assert.deepEqual([after.runs[1].status, lists.runs[1].status, after.fleets === lists.fleets], ["done", undefined, true]);
});

test("what is removed goes, and all of it at a new beginning", () => {
  const lists = applied(noLists(), document({ runs: [run("b", 2), run("a", 1)], volumes: [{ id: "v", created_at: "1" }] }));
  assert.equal(ids(applied(lists, document({ removed: { runs: ["b"] } })).runs), "a");
  const anew = applied(lists, document({ reset: true, runs: [run("z", 1)] }));
  assert.deepEqual([ids(anew.runs), ids(anew.volumes)], ["z", ""]);
});

test("what runs cost goes on between two answers", () => {
  const known = new WeakMap(), hour = 3_600_000;
  const runs = [run("a", 2, { price_per_hour_usd: 2, cost_usd: 10 }), run("b", 1, { price_per_hour_usd: 0, cost_usd: 5 })];
  assert.equal(costing(runs, 0, known), runs); // as they came
  const later = costing(runs, hour / 2, known);
  assert.deepEqual([later[0].cost_usd, later[1] === runs[1]], [11, true]);
  const fresh = run("a", 2, { price_per_hour_usd: 2, cost_usd: 12 });
  costing([fresh], hour, known);
  assert.deepEqual(costing([fresh, later[1]], 2 * hour, known).map((each) => each.cost_usd), [14, 5]);
  assert.equal(costing(runs.slice(1), 5 * hour, known)[0], runs[1]);
});

test("ten thousand things are patched at once", () => {
  const many = Array.from({ length: 10_000 }, (_, number) => run(`r${number}`, 1));
  const lists = applied(noLists(), document({ runs: many }));
  const after = applied(lists, document({ runs: [{ ...lists.runs[5_000], status: "done" }] }));
  assert.equal(after.runs.filter((each, place) => each !== lists.runs[place]).length, 1);
});

test("events are read in whatever pieces they come", () => {
  const text = ": \n\ndata: {\"a\": 1}\n\nevent: problem\ndata: one\ndata: two\n\r\ndata:last\n\n";
  for (const size of [1, 2, 7, 1000]) {
    const found = [];
    const read = eventReader((name, data) => found.push([name, data]));
    const parts = text.replace("\n\r\n", "\n\n").match(new RegExp(`[\\s\\S]{1,${size}}`, "g"));
    parts.forEach(read);
    assert.deepEqual(found, [["message", '{"a": 1}'], ["problem", "one\ntwo"], ["message", "last"]]);
  }
});
