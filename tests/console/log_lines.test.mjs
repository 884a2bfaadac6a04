import assert from "node:assert/strict";
import { test } from "node:test";

import { PLAIN, spans } from "../../chalicelib/console/lib/ansi.js";
import { LogLines, Query, Rows, linesOf, linkOf, marked, nextMatch } from "../../chalicelib/console/lib/log_lines.js";

const logOf = (...pieces) => {
  const log = new LogLines();
  pieces.forEach((piece, index) => log.add(`t${index}`, piece));
  return log;
};
const texts = (log) => Array.from({ length: log.length }, (_, index) => log.text(index));

test("pieces become lines, wherever they are cut", () => {
  assert.deepEqual(texts(logOf("one\ntwo\n")), ["one", "two"]);
  assert.deepEqual(texts(logOf("on", "e\r", "\ntw", "o")), ["one", "two"]);
  assert.deepEqual(texts(logOf("one\n\n\nfour")), ["one", "", "", "four"]);
  assert.deepEqual(texts(logOf("one\n", "\ntwo\n", "")), ["one", "", "two"]);
  assert.deepEqual(texts(logOf("")), []);
  assert.deepEqual(texts(logOf("10%\r20", "%\r30%")), ["30%"]);
});

test("a line has its number, its date and the style with which it begins", () => {
  const log = logOf("\x1b[31mred", " still\nred, too\x1b[0m\n", "plain");
  assert.deepEqual(log.window(0, 9).map(({ number, at, style }) => [number, at, style.fg]), [[1, "t0", ""], [2, "t1", "1"], [3, "t2", ""]]);
  assert.deepEqual(log.window(2, 3).map((line) => line.raw), ["plain"]);
});

test("of too many lines the first are dropped, and the numbers stay", () => {
  const log = new LogLines({ lines: 100 });
  for (let number = 1; number <= 250; number++) log.add("", `line ${number}\n`);
  assert.ok(log.length <= 100 && log.length >= 90);
  assert.equal(log.last, 250);
  assert.equal(log.line(0).number, log.first);
  assert.equal(log.text(log.indexOf(200)), "line 200");
  assert.equal(log.indexOf(1), 0);
  const heavy = new LogLines({ characters: 1000 });
  for (let number = 0; number < 100; number++) heavy.add("", `${"x".repeat(99)}\n`);
  assert.ok(heavy.length <= 10 && heavy.last === 100);
  heavy.add("", "y".repeat(5000));
  assert.equal(heavy.last, 101);
});

test("a search finds plain text; a capital letter makes the case count", () => {
  const log = logOf("Step \x1b[32mone\x1b[0m\nstep two\nnothing\nSTEP (3)\n");
  assert.deepEqual(log.matches(new Query("step")), [1, 2, 4]);
  assert.deepEqual(log.matches(new Query("Step o")), [1]);
  assert.deepEqual(log.matches(new Query("(3)")), [4]);
  assert.deepEqual(log.matches(new Query("step"), 2), [4]);
  assert.deepEqual(log.matches(new Query("")), []);
});

test("what is found is marked across colours", () => {
  const found = (raw, text) => marked(spans(raw, PLAIN), new Query(text)).map((part) => (part.found ? `[${part.text}]` : part.text)).join("");
  assert.equal(found("a \x1b[32mst\x1b[0mep, step", "step"), "a [st][ep], [step]");
  assert.equal(found("step", "step"), "[step]");
  assert.equal(found("stepstep", "step"), "[step][step]");
  assert.equal(found("none", "step"), "none");
  assert.deepEqual(marked(spans("x", PLAIN), null), [{ text: "x", classes: "", found: false }]);
  assert.deepEqual(marked([], new Query("x")), []);
});

test("the next match is after the current one, and around the end", () => {
  assert.equal(nextMatch([3, 7, 9], 3, 1), 7);
  assert.equal(nextMatch([3, 7, 9], 9, 1), 3);
  assert.equal(nextMatch([3, 7, 9], 3, -1), 9);
  assert.equal(nextMatch([3, 7, 9], 8, -1), 7);
  assert.equal(nextMatch([], 8, -1), null);
});

test("rows follow the width, and new lines", () => {
  const log = logOf("12345678\n\n1234567890123\n");
  const rows = new Rows();
  rows.fit(log, 0);
  assert.equal(rows.total, 3);
  rows.fit(log, 5);
  assert.deepEqual([0, 1, 2, 3].map((entry) => rows.start(entry)), [0, 2, 3, 6]);
  assert.deepEqual([0, 1, 2, 3, 5, 99].map((row) => rows.at(row)), [0, 0, 1, 2, 2, 2]);
  log.add("", "abc");
  rows.fit(log, 5);
  assert.equal(rows.total, 7);
  log.add("", "defgh");
  rows.fit(log, 5);
  assert.equal(rows.total, 8);
  rows.fit(log, 5, [1, 3]);
  assert.equal(rows.total, 3);
  rows.fit(log, 5);
  assert.equal(rows.total, 8);
  rows.fit(new LogLines(), 5);
  assert.equal(rows.total + rows.at(0), 0);
});

test("wide characters take two cells, and a tab goes to the next stop", () => {
  const log = logOf("日本\n\tx\nab\tx\n👍\n");
  assert.deepEqual([0, 1, 2, 3].map((index) => log.width(index)), [4, 9, 9, 2]);
});

test("a hundred thousand lines, and one of a megabyte, are no trouble", () => {
  const log = new LogLines();
  for (let piece = 0; piece < 1000; piece++) {
    log.add("", Array.from({ length: 100 }, (_, index) => `\x1b[32mstep ${piece * 100 + index}\x1b[0m loss 0.1\n`).join(""));
  }
  log.add("", `${"x".repeat(1_000_000)}\n`);
  assert.equal(log.length, 100_001);
  assert.equal(log.matches(new Query("step 99999")).length, 1);
  const rows = new Rows();
  rows.fit(log, 100);
  assert.equal(rows.total, 100_100);
  assert.equal(spans(log.line(100_000).raw, PLAIN)[0].text.length, 10_000);
});

test("an address names a line, or several", () => {
  assert.deepEqual(linesOf("12"), { from: 12, to: 12 });
  assert.deepEqual(linesOf("20-12"), { from: 12, to: 20 });
  for (const wrong of ["", "0", "x", "1-", undefined, "12-0"]) assert.equal(linesOf(wrong), null);
  assert.equal(linkOf(null, 5, true), "5");
  assert.equal(linkOf(linesOf("5"), 9, false), "9");
  assert.equal(linkOf(linesOf("5"), 9, true), "5-9");
  assert.equal(linkOf(linesOf("5"), 2, true), "2-5");
  assert.equal(linkOf(linesOf("5-9"), 7, true), "5-7");
  assert.equal(linkOf(linesOf("5"), 5, true), "5");
});
