import assert from "node:assert/strict";
import { test } from "node:test";

import { scriptOf } from "../../chalicelib/console/lib/script.js";
import { iconOf, tabStateOf } from "../../chalicelib/console/lib/tab_state.js";

const NOW = 1_790_000_000_000, me = "ann";
const run = (name, status, more = {}) => ({ id: name, name, status, user: me, submitted_at: new Date(NOW - 3_600_000).toISOString(), finished_at: null, why: null, reason: null, replicas: null, ...more });
const FAILED = run("broken", "failed", { finished_at: new Date(NOW - 60_000).toISOString() });

test("a tab counts what needs attention", () => {
  assert.deepEqual(tabStateOf([run("train", "running")], null, { me, now: NOW }), { mark: "", kind: null });
  assert.deepEqual(tabStateOf([FAILED, run("waits", "submitted", { why: "no capacity" })], null, { me, now: NOW }), { mark: "(2) ", kind: "bad" });
});

test("the tab of a run shows how that does, and nothing of others", () => {
  const of = (status) => tabStateOf([FAILED, run("train", status), run("train", "failed")], "train", { me, now: NOW });
  assert.deepEqual(["running", "done", "failed", "provisioning"].map((status) => of(status)), [
    { mark: "▸ ", kind: null }, { mark: "✓ ", kind: "good" }, { mark: "✕ ", kind: "bad" }, { mark: "", kind: null },
  ]);
});

test("the icon gets a dot", () => {
  const plain = "data:image/svg+xml,%3Csvg%3E%3Cpath/%3E%3C/svg%3E";
  assert.equal(iconOf(plain, null), plain);
  assert.match(iconOf(plain, "bad"), /%3Cpath\/%3E%3Ccircle .*d92d20.*%3C\/svg%3E$/);
  assert.notEqual(iconOf(plain, "bad"), iconOf(plain, "good"));
});

test("a page of the console says which script it begins with", () => {
  assert.equal(scriptOf('<link rel="stylesheet" href="console/index-B.css">\n<script type="module" src="console/main-A1.js"></script>'), "console/main-A1.js");
  assert.equal(scriptOf("<h1>Sign in to the proxy</h1><script src=x></script>"), null);
});
