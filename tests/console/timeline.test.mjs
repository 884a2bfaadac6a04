import assert from "node:assert/strict";
import { test } from "node:test";

import { abreast, attemptsOf, countedStates, lasted, marksOf, stagesOf, timelineOf } from "../../chalicelib/console/lib/timeline.js";

const START = 1_790_000_000_000;
const iso = (second) => new Date(START + second * 1000).toISOString();
const JOB = { type: "job", id: "j", name: "train-0-0" };
const RUN = { type: "run", id: "r", name: "train" };
const MACHINE = { type: "instance", id: "i", name: "cloud-0" };

const event = (second, type, targets, more = {}) => ({
  id: `${second}${type}`, at: iso(second), text: type, type, before: null, after: null, reason: null, detail: "",
  project: "main", user: null, token: null, targets, ...more,
});
const moved = (second, targets, before, after, more = {}) => event(second, "status", targets, { before, after, ...more });
const job = (more = {}) => ({ id: "j", submitted_at: iso(0), finished_at: null, status: "running", why: null, instance: MACHINE, ...more });
const newest = (...events) => events.reverse();
const stages = (...given) => timelineOf(...given).map(({ id, from, to, why, state }) => [id, (from - START) / 1000, to === null ? null : (to - from) / 1000, why, state]);

const BOUGHT = [
  event(0, "created", [RUN], { text: "submitted" }),
  event(0, "created", [JOB], { text: "created; waiting for capacity" }),
  event(4, "ordered", [MACHINE, JOB], { text: "ordered for train-0-0: h100x8 from aws" }),
  moved(4, [JOB, MACHINE], "submitted", "provisioning", { detail: "placed on cloud-0" }),
  moved(4, [RUN], "submitted", "provisioning"),
  moved(6, [MACHINE], "pending", "provisioning", { detail: "the cloud is creating it" }),
  moved(77, [MACHINE], "provisioning", "idle", { detail: "its agent reports from 10.0.0.1" }),
  moved(77, [MACHINE], "idle", "busy", { detail: "a job was placed on it" }),
];

test("a job on a machine that was bought for it, image and all", () => {
  const events = newest(...BOUGHT, moved(80, [JOB, MACHINE], "provisioning", "pulling"), moved(128, [JOB, MACHINE], "pulling", "running"));
  assert.deepEqual(stages(job(), events), [
    ["queued", 0, 4, "placed on cloud-0", "done"],
    ["offer", 4, 2, "the cloud is creating it", "done"],
    ["boot", 6, 71, "its agent reports from 10.0.0.1", "done"],
    ["prepare", 77, 3, "", "done"],
    ["pull", 80, 48, "", "done"],
    ["running", 128, null, "", "now"],
  ]);
});

test("events of one moment may come in any order", () => {
  const events = newest(...BOUGHT, moved(79, [JOB, MACHINE], "provisioning", "running"));
  const mixed = [...events].sort((a, b) => Date.parse(b.at) - Date.parse(a.at) || (a.id + a.after < b.id + b.after ? 1 : -1));
  assert.deepEqual(stages(job(), mixed), stages(job(), events));
  assert.deepEqual(stages(job(), events).map(([id]) => id), ["queued", "offer", "boot", "start", "running"]);
});

test("a job on a machine that was there has no order and no boot", () => {
  const events = newest(
    moved(-50, [MACHINE], "provisioning", "idle", { detail: "its agent reports" }),
    event(0, "created", [JOB]),
    moved(9, [JOB, MACHINE], "submitted", "provisioning", { detail: "placed on cloud-0" }),
    moved(9, [MACHINE], "idle", "busy"),
    moved(11, [JOB, MACHINE], "provisioning", "running"),
    moved(20, [JOB], "running", "terminating", { reason: "container_exited_with_error", detail: "exited with status 3" }),
    moved(21, [JOB], "terminating", "failed"),
    moved(21, [MACHINE], "busy", "idle"),
  );
  assert.deepEqual(stages(job({ status: "failed", finished_at: iso(21) }), events), [
    ["queued", 0, 9, "placed on cloud-0", "done"],
    ["start", 9, 2, "", "done"],
    ["running", 11, 9, "container exited with error, exited with status 3", "failed"],
    ["stopping", 20, 1, "", "done"],
  ]);
});

test("a job that waits says for what, and one without a place why it failed", () => {
  const waiting = job({ status: "submitted", why: "waiting for free capacity", instance: null });
  assert.deepEqual(stages(waiting, [event(0, "created", [JOB])]), [["queued", 0, null, "waiting for free capacity", "now"]]);
  assert.deepEqual(stages(waiting, []), [["queued", 0, null, "waiting for free capacity", "now"]]);
  const events = newest(event(3, "resubmitted", [JOB]), moved(4, [JOB], "submitted", "terminating", { reason: "failed_to_start_due_to_no_capacity", detail: "nowhere" }));
  assert.deepEqual(stages(job({ status: "failed", finished_at: iso(4), instance: null }), events)[0], ["queued", 3, 1, "failed to start due to no capacity, nowhere", "failed"]);
});

test("a job that ended well has no failed stage", () => {
  const events = newest(event(0, "created", [JOB]), moved(1, [JOB], "submitted", "provisioning"), moved(2, [JOB], "provisioning", "running"), moved(5, [JOB], "running", "terminating", { reason: "done_by_runner" }));
  assert.deepEqual(stages(job({ status: "done", finished_at: iso(6) }), events).map((stage) => stage[4]), ["done", "done", "done", "done"]);
});

test("between attempts, and before a scheduled start, a run waits", () => {
  const run = { status: "pending", submitted_at: iso(0), next_start_at: null, why: "nowhere to run" };
  const events = newest(event(0, "created", [JOB]), event(60, "resubmitted", [JOB]), moved(61, [JOB], "terminating", "failed"));
  const [stage, ...more] = stagesOf(run, job({ status: "failed", finished_at: iso(61) }), events);
  assert.deepEqual([stage.title, stage.from, stage.why, more.length], ["Waiting", START, "2 attempts so far; the next one comes by itself", 0]);
  const ran = [...newest(moved(30, [JOB], "provisioning", "running")), ...events];
  assert.equal(stagesOf(run, job({ status: "failed", finished_at: iso(61) }), ran)[0].from, START + 61_000);
  assert.equal(stagesOf({ ...run, next_start_at: iso(99) }, job(), [])[0].title, "Scheduled");
  assert.deepEqual(stagesOf({ ...run, status: "submitted" }, job({ status: "submitted", instance: null }), [])[0].why, "nowhere to run");
});

test("short times have tenths", () => {
  assert.deepEqual([12, 951, 4_260, 71_000].map(lasted), ["0.01 s", "1 s", "4.3 s", "1 min 11 s"]);
});

test("attempts are those of the run and those that events know", () => {
  const events = newest(event(0, "created", [{ ...JOB, id: "first" }]), event(5, "resubmitted", [{ ...JOB, id: "second" }]), event(9, "resubmitted", [JOB]), event(9, "created", [RUN]));
  const found = attemptsOf([{ ...job(), name: "train-0-0", attempt: 2, submitted_at: iso(9) }], events);
  assert.deepEqual(found.map(({ id, latest, number }) => [id, latest, number]), [["j", true, 3], ["second", false, 2], ["first", false, 1]]);
});

test("marks leave out what nobody asks a chart about", () => {
  const events = newest(...BOUGHT, moved(79, [JOB], "provisioning", "running"), moved(90, [JOB], "terminating", "failed"), event(95, "scaled", [RUN]), event(96, "unreachable", [MACHINE]));
  assert.deepEqual(marksOf(events).map(({ kind }) => kind), ["bad", "calm", "bad", "good"]);
});

test("jobs are drawn over one time, each stage as a share of it", () => {
  const stage = (id, from, to) => ({ id, title: id, why: "", state: to === null ? "now" : "done", from: START + from * 1000, to: to === null ? null : START + to * 1000 });
  const jobs = [
    { job: job({ id: "a" }), stages: [stage("queued", 0, 20), stage("running", 20, null)] },
    { job: job({ id: "b" }), stages: [stage("queued", 10, 30), stage("running", 30, 50)] },
  ];
  const found = abreast(jobs, START + 100_000).map(({ job: { id }, bars }) => [id, bars.map((bar) => [bar.id, bar.left, bar.width, bar.ms])]);
  assert.deepEqual(found, [
    ["a", [["queued", 0, 20, 20_000], ["running", 20, 80, 80_000]]],
    ["b", [["queued", 10, 20, 20_000], ["running", 30, 20, 20_000]]],
  ]);
  assert.deepEqual(abreast([], START), []);
});

test("jobs are counted by their status", () => {
  assert.equal(countedStates(["pulling", "running", "running"].map((status) => ({ status }))), "2 running, 1 pulling");
});
