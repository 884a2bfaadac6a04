import assert from "node:assert/strict";
import { test } from "node:test";

import { blocksOf, certificateState, claimText, dnsState, gpusText, sizeText, stateOf, troubleOf, worstCertificate } from "../../chalicelib/console/lib/machines.js";

const DAY = 24 * 3600 * 1000;
const machine = (more) => ({ id: "m", name: "pool-0", status: "idle", health: "healthy", health_why: null, why: null, unreachable: false, blocks: 1, busy_blocks: 0, claims: [], ...more });
const claim = (run_id, blocks, more) => ({ run_id, job_id: `job-${run_id}`, replica: 0, node: 0, blocks, ...more });
const run = (id, more) => ({ id, name: `name-${id}`, project: "main", type: "task", ...more });

test("what a machine has, in few words", () => {
  assert.equal(gpusText([{ name: "H100", count: 8, memory_gb: 80 }, { name: "T4", count: 1, memory_gb: 15.36 }]), "8 × H100 80 GB, 1 × T4 15 GB");
  assert.equal(sizeText({ cpus: 1, memory_gb: 0.5, disk_gb: 100.4, gpus: [] }), "1 CPU · 0.5 GB · 100 GB disk");
});

test("a machine that is away or ill isn't just idle", () => {
  assert.deepEqual(stateOf(machine({})), { value: "idle" });
  assert.deepEqual(stateOf(machine({ unreachable: true, health: "failure" })), { value: "unreachable" });
  assert.deepEqual(stateOf(machine({ status: "busy", health: "warning" })), { value: "warning", text: "busy, warning" });
  assert.deepEqual(stateOf(machine({ status: "terminating", unreachable: true })), { value: "terminating" });
  assert.equal(troubleOf(machine({})), "");
  assert.match(troubleOf(machine({ unreachable: true, health_why: "GPU 3 is lost." })), /doesn't report.* GPU 3 is lost\.$/);
});

test("blocks are a map of who has them", () => {
  const runs = new Map([["a", run("a")]]);
  const parts = blocksOf(machine({ blocks: 6, claims: [claim("a", [0, 1]), claim("b", [3]), claim("a", [4, 5], { node: 1 })] }), runs);
  assert.deepEqual(parts.map(({ from, count, claim, run }) => [from, count, claim?.run_id ?? null, run?.name ?? null]), [[0, 2, "a", "name-a"], [2, 1, null, null], [3, 1, "b", null], [4, 2, "a", "name-a"]]);
  assert.equal(claimText(claim("a", [0], { node: 2 }), run("a")), "name-a, node 2");
  assert.equal(claimText(claim("a", [0]), run("a", { type: "service" })), "name-a, replica 0");
  assert.equal(claimText(claim("b", [0]), null), "a run that you can't see");
});

test("certificates say how long they last", () => {
  const issued = (days) => ({ host: "x", status: "issued", why: null, expires_at: new Date(days * DAY).toISOString(), next_attempt_at: null });
  assert.deepEqual(certificateState(issued(61), 0), { look: "healthy", text: "61 d left" });
  assert.deepEqual(certificateState(issued(20), 0), { look: "warning", text: "20 d left" });
  assert.deepEqual(certificateState(issued(1), 2 * DAY), { look: "failed", text: "expired" });
  assert.deepEqual(certificateState({ ...issued(1), status: "requested", expires_at: null }, 0), { look: "provisioning", text: "requested" });
  assert.deepEqual(certificateState({ ...issued(1), status: "failed", expires_at: null }, 0), { look: "failed", text: "failed" });
  assert.equal(worstCertificate({ certificates: [issued(61), issued(3)] }, 0).text, "3 d left");
  assert.equal(worstCertificate({ certificates: [] }, 0), null);
});

test("a certificate proves that names lead to the gateway", () => {
  const gateway = (more) => ({ domain: "x.org", hostname: "1.2.3.4", status: "running", certificates: [], ...more });
  assert.equal(dnsState(gateway({ certificates: [{ status: "failed" }, { status: "issued" }] })).text, "leads here");
  assert.equal(dnsState(gateway({ certificates: [{ status: "failed" }] })).look, "failed");
  assert.equal(dnsState(gateway({})).text, "not seen yet");
  assert.equal(dnsState(gateway({ hostname: null })).text, "waits for its address");
  assert.equal(dnsState(gateway({ domain: null })).text, "no domain");
});
