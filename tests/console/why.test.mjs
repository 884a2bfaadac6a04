import assert from "node:assert/strict";
import { test } from "node:test";

import { reason, reasonsOf } from "../../chalicelib/console/lib/why.js";

test("each fleet has its reason, and what would help", () => {
  const why = "nowhere to run: fleet `cloud` can grow, but every matching offer costs more than `max_price`, 3 (raise `max_price` to 25.76); fleet `local` needs 8 GPUs, has none (remove `gpu`, or create another fleet)";
  assert.deepEqual(reasonsOf(why), [
    { text: "fleet `cloud` can grow, but every matching offer costs more than `max_price`, 3", change: "raise `max_price` to 25.76" },
    { text: "fleet `local` needs 8 GPUs, has none", change: "remove `gpu`, or create another fleet" },
  ]);
});

test("what is in brackets within a reason, or no change, stays", () => {
  assert.deepEqual(reason("fleet `cloud` is full (2 of 2 nodes), and nothing in it fits (raise `nodes`)"), {
    text: "fleet `cloud` is full (2 of 2 nodes), and nothing in it fits", change: "raise `nodes`",
  });
  assert.deepEqual(reason("fleet `cloud` is full (2 of 2 nodes)"), { text: "fleet `cloud` is full (2 of 2 nodes)", change: null });
  assert.deepEqual(reason("an odd )"), { text: "an odd )", change: null });
  assert.deepEqual(reasonsOf("exited with status 3 in command 2 (`exit 3; echo`)")[0].text.slice(0, 20), "exited with status 3");
});

test("waiting and no reason", () => {
  assert.deepEqual(reasonsOf("waiting for free capacity in fleet `cloud`"), [{ text: "waiting for free capacity in fleet `cloud`", change: null }]);
  assert.deepEqual(reasonsOf("will be retried: nowhere to run: no fleet (create one)"), [{ text: "no fleet", change: "create one" }]);
  assert.deepEqual(reasonsOf("waiting for quota: 1 of 1 job is running")[0].text, "waiting for quota: 1 of 1 job is running");
  assert.deepEqual(reasonsOf(null), []);
});
