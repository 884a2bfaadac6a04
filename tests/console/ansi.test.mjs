import assert from "node:assert/strict";
import { test } from "node:test";

import { PLAIN, SHOWN, plain, spans, styleAfter, unshown } from "../../chalicelib/console/lib/ansi.js";

const shown = (line, style = PLAIN) => spans(line, style).map(({ text, classes }) => (classes ? `<${classes}>${text}</>` : text)).join("");

test("colours and faces become classes", () => {
  assert.equal(shown("plain"), "plain");
  assert.equal(shown("\x1b[32mok\x1b[0m done"), "<fg-2>ok</> done");
  assert.equal(shown("\x1b[1;33mwarn\x1b[22m still\x1b[m no"), "<fg-3 ansi-bold>warn</><fg-3> still</> no");
  assert.equal(shown("\x1b[91;104mx"), "<fg-9 bg-12>x</>");
  assert.equal(shown("\x1b[2;3;4;7;9mx\x1b[22;23;24;27;29my"), "<ansi-dim ansi-italic ansi-underline ansi-strike ansi-inverse>x</>y");
  assert.equal(shown("\x1b[31ma\x1b[39mb\x1b[41mc\x1b[49md"), "<fg-1>a</>b<bg-1>c</>d");
});

test("one of 256 colours, and of all, becomes the nearest of 16", () => {
  assert.equal(shown("\x1b[38;5;9mx"), "<fg-9>x</>");
  assert.equal(shown("\x1b[38;5;196mx"), "<fg-1>x</>".replace("fg-1", shown("\x1b[38;2;255;0;0mx").match(/fg-\d+/)[0]));
  assert.equal(shown("\x1b[48;2;255;255;255;1mx"), "<bg-15 ansi-bold>x</>");
  assert.equal(shown("\x1b[38:2:0:0:0mx"), "<fg-0>x</>");
  assert.equal(shown("\x1b[38;5;232mx"), "<fg-0>x</>");
  assert.equal(shown("\x1b[38mx"), "x");
});

test("a style lasts over lines", () => {
  const after = styleAfter("\x1b[31mfirst", PLAIN);
  assert.equal(shown("second", after), "<fg-1>second</>");
  assert.equal(styleAfter("third\x1b[0m", after), PLAIN);
  assert.equal(styleAfter("no sequence", after), after);
});

test("what isn't for readers is left out", () => {
  assert.equal(shown("a\x1b[2Jb\x1b[10;5Hc\x1b[?25ld"), "abcd");
  assert.equal(shown("\x1b]0;a title\x07text"), "text");
  assert.equal(shown("\x1b]8;;https://example.com\x1b\\link\x1b]8;;\x1b\\"), "link");
  assert.equal(shown("bell\x07 and \x00null\x7f"), "bell and null");
  assert.equal(shown("\x1b(Bcharset"), "charset");
  assert.equal(shown("cut off \x1b["), "cut off ");
  assert.equal(shown("cut off \x1b[3"), "cut off ");
  assert.equal(shown("cut off \x1b"), "cut off ");
  assert.equal(shown("tab\tstays"), "tab\tstays");
  assert.equal(shown("a\u202eb\u2066c\u202c"), "abc");
  assert.equal(shown("x\rab\u202ec\x07d"), "abcd");
  assert.equal(shown("<img src=x onerror=alert(1)>"), "<img src=x onerror=alert(1)>");
});

test("a line that is written over shows what is left", () => {
  assert.equal(shown("10%\r20%\r100%"), "100%");
  assert.equal(shown("loading...\rdone"), "doneing...");
  assert.equal(shown("loading...\r\x1b[Kdone"), "done");
  assert.equal(shown("loading...\x1b[2K\rdone"), "done");
  assert.equal(shown("abc\b\bX"), "aXc");
  assert.equal(shown("windows\r"), "windows");
  assert.equal(shown("\x1b[31mab\x1b[0m\rc"), "c<fg-1>b</>");
});

test("of a very long line a part is shown", () => {
  const long = "x".repeat(1_000_000);
  assert.equal(shown(long).length, SHOWN);
  assert.equal(unshown(long), 1_000_000 - SHOWN);
  const bar = Array.from({ length: 100_000 }, (_, number) => `step ${number}`).join("\r");
  assert.equal(shown(bar), "step 99999");
  assert.equal(plain(`${"\x1b[1m"}${long}`), long);
});

test("plain text is what a search reads", () => {
  assert.equal(plain("\x1b[32mstep\x1b[0m 1"), "step 1");
  assert.equal(plain("a\rb"), "b");
  assert.equal(plain("as it is"), "as it is");
});
