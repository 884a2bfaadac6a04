import assert from "node:assert/strict";
import { test } from "node:test";

import { momentsOf, nearest, pathOf, scaleOf } from "../../chalicelib/console/lib/plot.js";

const MINUTE = 60_000, HOUR = 60 * MINUTE, GB = 2 ** 30;
const same = (value) => value;

test("a scale has round numbers and ends above the highest value", () => {
  for (const [most, lines] of [[0, [0, 1]], [3.9, [0, 1, 2, 3, 4]], [100, [0, 25, 50, 75, 100]], [0.011, [0, 0.005, 0.01, 0.015]], [1234, [0, 500, 1000, 1500]]]) assert.deepEqual(scaleOf(most), lines);
  assert.deepEqual(scaleOf(70 * GB, true), [0, 32 * GB, 64 * GB, 96 * GB]);
});

test("an axis has round moments of local time, not more than there is room for", () => {
  const from = Date.UTC(2026, 0, 1, 6, 3), to = from + 50 * MINUTE;
  assert.deepEqual(momentsOf(from, to, 6, 0).map((at) => (at - from) / MINUTE), [7, 17, 27, 37, 47]);
  assert.deepEqual(momentsOf(from, from + 5 * HOUR, 6, -30 * MINUTE).map((at) => (at - from) / MINUTE), [27, 87, 147, 207, 267]);
  for (let length = 1000; length < 1e11; length *= 1.7) {
    const found = momentsOf(from, from + length, 5, 0);
    assert.ok(found.length >= 1 && found.length <= 6, `${length}: ${found.length}`);
  }
});

test("a line ends where there is no value, and goes on after it", () => {
  assert.equal(pathOf([[0, 1], [5, 2], [10, null], [15, 3], [20, 4]], same, same), "M0 1h0L5 2M15 3h0L20 4");
  assert.equal(pathOf([[0, null]], same, same), "");
});

test("of many points in a pixel the least, the most and the last are drawn", () => {
  const points = [[0, 5], ...Array.from({ length: 1000 }, (_, at) => [1 + at / 3000, at % 100])];
  assert.equal(pathOf([...points, [3, 7]], same, same), "M0 5h0L1 0L1 0L1 99L3 7");
  assert.equal(pathOf([[0, 5], [0.1, 9], [0.2, 6]], same, same), "M0 5h0L0 5L0 9L0 6");
});

test("the nearest of moments", () => {
  const times = [10, 20, 40];
  assert.deepEqual([-5, 14, 16, 29, 31, 99].map((at) => nearest(times, at)), [0, 0, 1, 1, 2, 2]);
  assert.equal(nearest([], 3), -1);
});
