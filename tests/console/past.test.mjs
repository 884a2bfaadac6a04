import assert from "node:assert/strict";
import { test } from "node:test";

import { DAY, STEP, afterwards, along, daySteps, instantOf, instantText, nextMark, spoken, stepAt, stepFor } from "../../chalicelib/console/lib/past.js";

const NOW = Date.parse("2026-11-28T12:02:30Z");

test("an address names an instant of the last day", () => {
  assert.equal(instantOf("2026-11-28T06:30Z", NOW), Date.parse("2026-11-28T06:30:00Z"));
  assert.equal(instantOf("2026-11-20T06:30Z", NOW), NOW - DAY);
  assert.equal(instantOf("2027-01-01T00:00Z", NOW), NOW);
  assert.deepEqual([instantOf("nonsense", NOW), instantOf(undefined, NOW)], [NOW, NOW]);
  assert.deepEqual(["2026-11-28T06:30:00Z", "2026-11-28T06:30:05Z", "2026-11-28T06:30:05.120Z"].map((text) => instantText(Date.parse(text))), ["2026-11-28T06:30Z", "2026-11-28T06:30:05Z", "2026-11-28T06:30:05.120Z"]);
});

test("the day has steps of five minutes by the clock", () => {
  const steps = daySteps(NOW);
  assert.equal(steps.at(-1), Date.parse("2026-11-28T12:00:00Z"));
  assert.ok(steps.every((at, index) => at % STEP === 0 && (index === 0 || at - steps[index - 1] === STEP)));
  assert.ok(steps[0] >= NOW - DAY && steps.length >= 287);
  assert.equal(steps[stepAt(steps, Date.parse("2026-11-28T06:34:00Z"))], Date.parse("2026-11-28T06:30:00Z"));
  assert.equal(stepAt(steps, 0), 0);
});

test("keys move by an hour, and to the ends", () => {
  assert.deepEqual([stepFor("PageUp", 10, 287), stepFor("PageDown", 5, 287), stepFor("Home", 9, 287), stepFor("End", 9, 287), stepFor("a", 9, 287)], [22, 0, 0, 287, null]);
});

test("marks are found before and after an instant", () => {
  const marks = ["06:00", "07:00"].map((time) => ({ at: `2026-11-28T${time}:00Z` }));
  const at = Date.parse(marks[0].at);
  assert.equal(nextMark(marks, at, 1), marks[0]);
  assert.equal(nextMark(marks, at + 2, -1), marks[0]);
  assert.equal(nextMark(marks, afterwards(marks[0].at), 1), marks[1]);
  assert.equal(nextMark(marks, afterwards(marks[1].at), -1), marks[0]);
  assert.equal(nextMark(marks, at, -1), undefined);
  assert.deepEqual([along(NOW, NOW), along(NOW - DAY / 2, NOW), along(0, NOW)], [100, 50, 0]);
});

test("a state is said in a sentence", () => {
  const state = { runs: [{ status: "running" }, { status: "failed" }, { status: "running" }], instances: [{}] };
  assert.equal(spoken(NOW, state), "12:02 UTC, 2 running, 1 failed, 1 machine");
  assert.equal(spoken(NOW, undefined), "12:02 UTC");
});
