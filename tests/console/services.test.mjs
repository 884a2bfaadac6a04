import assert from "node:assert/strict";
import { test } from "node:test";
import { reader, refusalOf } from "../../chalicelib/console/lib/completions.js";
import { gpuTitle, grouped, wanted } from "../../chalicelib/console/lib/offers.js";
import { addressOf, decisionOf, greatest, isRolling, lastMinute, nextChanges, points, readyOf, remembered, rollout, ruleOf, shares, standing, times } from "../../chalicelib/console/lib/services.js";
import { snippets } from "../../chalicelib/console/lib/snippets.js";

const replica = (changes) => ({ num: 0, group: "0", revision: 0, job: "j", status: "running", reason: null, why: null, ready_at: "2026-01-01T00:00:00Z", draining_at: null, waiting: null, submitted_at: "2026-01-01T00:00:00Z", ...changes });
const group = (changes) => ({ name: "0", fewest: 1, most: 4, desired: 2, why: null, wanted: null, changed_at: null, scaling: null, ...changes });
const scaling = { metric: "queue", target: 8, window_seconds: 60, scale_up_delay_seconds: 300, scale_down_delay_seconds: 600 };
const service = (changes) => ({ run: "chat", url: "/x/", auth: true, model: null, revision: 0, groups: [group({})], replicas: [], traffic: { held: 0, reported_at: null, items: [], answers: [], first_byte: null, whole: null, prompt_tokens: 0, completion_tokens: 0 }, ...changes });

test("a replica is ready, loading or draining, which its job's status doesn't say", () => {
  const all = [replica({}), replica({ ready_at: null }), replica({ draining_at: "2026-01-01T00:00:00Z" }), replica({ status: "pulling", ready_at: null }), replica({ status: "failed" }), replica({ status: "terminating", draining_at: "2026-01-01T00:00:00Z" })];
  assert.deepEqual(all.map(standing), ["ready", "loading", "draining", "pulling", "failed", "terminating"]);
  assert.equal(readyOf(service({ replicas: all })), 1);
});

test("a rollout counts replicas by revision, the newest first", () => {
  const found = service({ revision: 3, replicas: [replica({ revision: 2 }), replica({ revision: 2, draining_at: "2026-01-01T00:00:00Z" }), replica({ revision: 3, ready_at: null }), replica({ revision: 1, status: "done" })] });
  assert.deepEqual(rollout(found), [
    { revision: 3, current: true, total: 1, ready: 0, draining: 0 },
    { revision: 2, current: false, total: 2, ready: 1, draining: 1 },
  ]);
  assert.ok(isRolling(found));
  assert.ok(!isRolling(service({ replicas: [replica({})] })));
});

test("rules and decisions are said in words", () => {
  assert.equal(ruleOf(group({ fewest: 1, most: 1 })), "Always 1 replica.");
  assert.equal(ruleOf(group({ scaling })), "1 to 4 replicas: one for every 8 requests under way or waiting, averaged over 1 min.");
  assert.equal(ruleOf(group({ scaling: { ...scaling, metric: "rps", target: 0.5, window_seconds: 30 } })), "1 to 4 replicas: one for every 0.5 requests a second, averaged over 30 s.");
  assert.equal(decisionOf(group({ scaling, why: "no requests for 1 min" })), "2 replicas now: no requests for 1 min.");
  assert.equal(decisionOf(group({ scaling, desired: 0 })), "None now.");
  assert.equal(decisionOf(group({})), null);
});

test("delays of scaling say when the number may change", () => {
  const changed = Date.parse("2026-01-01T00:00:00Z");
  const found = nextChanges(group({ scaling, changed_at: "2026-01-01T00:00:00Z" }), changed + 301_000);
  assert.deepEqual(found, [{ what: "Fewer at the earliest", at: changed + 600_000 }]);
  assert.deepEqual(nextChanges(group({ scaling }), changed), []);
});

test("the last minute has a rate, requests under way, and how long one takes", () => {
  const now = Date.parse("2026-01-01T00:01:05Z");
  const items = [{ at: "2025-12-31T23:00:00Z", requests: 99, busy: 9 }, { at: "2026-01-01T00:00:30Z", requests: 60, busy: 6 }];
  const found = lastMinute(service({ traffic: { ...service({}).traffic, items } }), now);
  assert.deepEqual(found, { rate: 1, busy: 1, seconds: 1 });
  assert.equal(lastMinute(service({}), now).seconds, null);
});

test("steps without requests are zero, and what is old is forgotten", () => {
  const at = Date.parse("2026-01-01T00:00:10Z");
  const known = remembered(new Map([[0, { requests: 1, busy: 1 }]]), [{ at: "2026-01-01T00:00:10Z", requests: 20, busy: 2 }], 1000);
  assert.deepEqual([...known.keys()], [at]);
  assert.deepEqual(points(known, at - 10_000, at + 20_000), { rate: [[at - 10_000, 0], [at, 2], [at + 10_000, 0]], busy: [[at - 10_000, 0], [at, 2], [at + 10_000, 0]] });
});

test("how long answers took is a line for each share, with gaps, and what is known is remembered while it is shown", () => {
  const start = Date.parse("2026-01-01T00:00:00Z"), share = (p50) => ({ p50, p95: 2 * p50, p99: 3 * p50 });
  const known = new Map([[start - 60_000, { whole: share(9) }], [start, { whole: share(0.5), first_byte: share(0.1) }]]);
  const found = times(known, [{ at: "2026-01-01T00:01:00Z", whole: share(1), first_byte: null }], "whole", start, start + 60_000);
  assert.deepEqual(found[1], { label: "p95", points: [[start, 1], [start + 30_000, null], [start + 60_000, 2]] });
  assert.deepEqual(found.map((line) => line.label), ["p50", "p95", "p99"]);
  assert.deepEqual([...known.keys()], [start, start + 60_000]);
  assert.ok(Math.abs(greatest(found) - 3.3) < 1e-9);
  assert.equal(greatest(times(new Map(), [], "whole", start, start)), 1);
  assert.deepEqual(shares(share(0.42)), ["p50 420 ms", "p95 840 ms", "p99 1.26 s"]);
  assert.equal(shares(null), null);
});

test("a service at the server has an address below it, behind any prefix", () => {
  assert.equal(addressOf("/proxy/services/main/chat/", "https://host/stage/"), "https://host/stage/proxy/services/main/chat/");
  assert.equal(addressOf("https://chat.example.com/", "https://host/"), "https://chat.example.com/");
});

test("snippets name the model and take the token from the environment", () => {
  const found = snippets({ url: "https://h/x/", auth: true, model: { name: "it's", url: "https://h/x/v1" } });
  assert.deepEqual(found.map((each) => each.key), ["curl", "python", "js"]);
  for (const { text } of found) assert.match(text, /DSTACK_TOKEN/);
  assert.match(found[0].text, /it'\\''s/);
  for (const { text } of snippets({ url: "https://h/x/", auth: false, model: null })) assert.doesNotMatch(text, /TOKEN/);
});

test("a completion's events are read wherever the texts are cut", () => {
  const events = ['data: {"choices":[{"delta":{"content":"Hel"}}]}', 'data: {"choices":[{"delta":{"content":"lo"}}],"usage":{"prompt_tokens":1,"completion_tokens":2}}', "data: [DONE]", ": a comment"].join("\r\n\r\n") + "\n\n";
  for (const size of [1, 7, 1000]) {
    const read = reader(), found = [];
    for (let at = 0; at < events.length; at += size) found.push(...read(events.slice(at, at + size)));
    assert.equal(found.map((piece) => piece.text).join(""), "Hello");
    assert.equal(found[1].usage.completion_tokens, 2);
    assert.ok(found[2].done && found.length === 3);
  }
  assert.match(reader()("data: {oops\n")[0].error, /isn't an event/);
});

test("what refuses a request is quoted if it says why", () => {
  assert.equal(refusalOf(400, '{"error":{"message":"too long"}}'), "too long");
  assert.equal(refusalOf(403, '{"detail":[{"msg":"no token"}]}'), "no token");
  assert.equal(refusalOf(502, "<html>"), "The service answered with status 502.");
});

const offer = (name, count, price, more = {}) => ({ backend: "aws", region: "r1", type: "m", spot: false, price_per_hour_usd: price, availability: "available", resources: { cpus: 1, cpu_arch: "x86", memory_gb: 1, disk_gb: 1, gpus: name ? [{ name, count, memory_gb: 80 }] : [] }, ...more });

test("offers are grouped by what they have, the cheapest group first", () => {
  const found = grouped([offer("H100", 8, 20), offer("H100", 1, 3, { region: "r2", spot: true }), offer("L4", 1, 1), offer("", 0, 2)], "gpu");
  assert.deepEqual(found.map((each) => [each.title, each.offers.length, each.cheapest.price_per_hour_usd, each.regions]), [["L4 80GB", 1, 1, 1], ["No GPU", 1, 2, 1], ["H100 80GB", 2, 3, 2]]);
  assert.equal(gpuTitle(offer("H100", 8, 1).resources), "H100 80GB × 8");
});

test("an offer can be asked for", () => {
  assert.deepEqual(wanted(offer("H100", 8, 20)), { gpu: "H100:80GB:8", backend: "aws", region: "r1", spot: "on-demand" });
  assert.deepEqual(wanted(offer("", 0, 1, { spot: true })), { backend: "aws", region: "r1", spot: "spot" });
});
