import assert from "node:assert/strict";
import { test } from "node:test";

import { changesOnly, lineDiff } from "../../chalicelib/console/lib/diff.js";

const MARKS = { same: " ", gone: "-", new: "+" };
const diff = (before, after) => lineDiff(before, after).map(({ kind, text }) => `${MARKS[kind]}${text}`);

test("lines that go and come", () => {
  assert.deepEqual(diff("a\nb\nc\n", "a\nx\nc\nd\n"), [" a", "-b", "+x", " c", "+d"]);
  assert.deepEqual(diff("", "a\n"), ["+a"]);
  assert.deepEqual(diff("a\n", ""), ["-a"]);
  assert.deepEqual(diff("a\n", "a"), [" a"]);
  assert.deepEqual(diff("", ""), []);
  assert.deepEqual(diff("a\n\nb", "a\nb"), [" a", "-", " b"]);
});

test("lines have their numbers before and after", () => {
  assert.deepEqual(lineDiff("a\nb", "b\nc").map(({ before, after }) => [before, after]), [[1, null], [2, 1], [null, 2]]);
});

test("the fewest lines change", () => {
  const before = Array.from({ length: 200 }, (_, n) => `line ${n}`);
  const after = before.toSpliced(100, 2, "other").toSpliced(20, 0, "inserted");
  assert.equal(diff(before.join("\n"), after.join("\n")).filter((line) => line[0] !== " ").length, 4);
});

test("what is far from a change is left out", () => {
  const lines = lineDiff("a\nb\nc\nd\ne\nf\ng", "a\nb\nc\nD\ne\nf\ng");
  assert.deepEqual(changesOnly(lines, 1).map((line) => line?.text ?? "…"), ["…", "c", "d", "D", "e", "…"]);
  assert.deepEqual(changesOnly(lineDiff("a", "a")), [null]);
  assert.deepEqual(changesOnly([]), []);
});
