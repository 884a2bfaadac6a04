/** Which requests are sent again, and what a refusal becomes: no server is needed. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { Client, DstackError, NotReached, Unanswered, answer } from "../src/index.js";

type Step = Response | string | ((request: Request) => Response);

/** A client whose requests get these answers, one after the other; a text is the code of a failure. */
function scripted(...steps: Step[]) {
  const sent: Request[] = [];
  const pauses: number[] = [];
  const client = new Client({
    url: "http://server/",
    token: "token",
    project: "main",
    random: () => 1,
    sleep: async (milliseconds) => void pauses.push(milliseconds),
    fetch: async (request) => {
      sent.push(request.clone());
      const step = steps.shift();
      assert.ok(step !== undefined, "a request too many");
      if (typeof step === "string") {
        throw new TypeError("fetch failed", { cause: { code: step } });
      }
      return typeof step === "function" ? step(request) : step;
    },
  });
  return { client, sent, pauses };
}

const json = (body: unknown, status = 200) => Response.json(body, { status });
const busy = () => json({ detail: [{ msg: "Busy.", code: "error" }] }, 503);

test("a call is sent as the protocol has it", async () => {
  const { client, sent } = scripted(json({ status: "done" }));
  await client.runs.get("x");
  const [request] = sent;
  assert.equal(request?.url, "http://server/api/project/main/runs/get");
  assert.equal(request.headers.get("authorization"), "Bearer token");
  assert.deepEqual(await request.json(), { run_name: "x" });
});

test("without a connection everything is sent again", async () => {
  const { client, sent, pauses } = scripted("ECONNREFUSED", "ECONNREFUSED", json(null));
  await client.runs.stop("x");
  assert.equal(sent.length, 3);
  assert.deepEqual(pauses, [200, 400]);
});

test("when the answer is lost, only what may be repeated is", async () => {
  for (const failure of ["UND_ERR_SOCKET", busy()]) {
    const { client, sent } = scripted(failure, json({ status: "done" }));
    await client.runs.get("x");
    assert.equal(sent.length, 2);
  }
  const submission = scripted("UND_ERR_SOCKET", json({ id: "1" }));
  await submission.client.runs.submit({ type: "task" });
  const keys = submission.sent.map((request) => request.headers.get("Idempotency-Key"));
  assert.ok(keys[0] && keys[0] === keys[1]);
  const stop = scripted("UND_ERR_SOCKET");
  await assert.rejects(stop.client.runs.stop("x"), (error) => error instanceof Unanswered && error.sent);
  await assert.rejects(scripted(busy()).client.runs.stop("x"), { status: 503, message: "Busy." });
});

test("a write of a resource has a key, and waits as it is asked to", async () => {
  const busy = Response.json({}, { status: 503, headers: { "Retry-After": "2" } });
  const { client, sent, pauses } = scripted(busy, new Response(null, { status: 204 }));
  const params = { path: { project_name: "main", run_name: "x" } };
  await answer(client.api.DELETE("/api/v1/projects/{project_name}/runs/{run_name}", { params }));
  assert.ok(sent[0]?.headers.get("Idempotency-Key"));
  assert.equal(sent[0]?.headers.get("Idempotency-Key"), sent[1]?.headers.get("Idempotency-Key"));
  assert.deepEqual(pauses, [2000]);
});

test("a body that breaks off is a lost answer", async () => {
  const cut = () => {
    const error = new TypeError("terminated", { cause: { code: "UND_ERR_SOCKET" } });
    return new Response(new ReadableStream({ pull: (body) => body.error(error) }));
  };
  const { client, sent } = scripted(cut(), json({ status: "done" }));
  assert.equal((await client.runs.get("x")).status, "done");
  assert.equal(sent.length, 2);
  await assert.rejects(scripted(cut()).client.runs.stop("x"), (error) => error instanceof Unanswered && error.sent);
});

test("a caller who aborts gets their reason, and nothing is sent again", async () => {
  const reason = new Error("enough");
  const at = { params: { path: { project_name: "main", run_name: "x" } } };
  const during = new AbortController();
  const stopped = scripted((request) => {
    during.abort(reason);
    request.signal.throwIfAborted();
    return json({});
  });
  const { signal } = during;
  await assert.rejects(stopped.client.api.GET("/api/v1/projects/{project_name}/runs/{run_name}", { ...at, signal }), reason);
  const between = new AbortController();
  const paused = scripted(() => {
    between.abort(reason);
    return busy();
  });
  const call = paused.client.api.GET("/api/v1/projects/{project_name}/runs/{run_name}", { ...at, signal: between.signal });
  await assert.rejects(call, reason);
  assert.deepEqual([stopped.sent.length, paused.sent.length], [1, 1]);
});

test("a redirect and another program are recognised", async () => {
  const moved = new Response("<html>", { status: 308, headers: { Location: "https://server/x" } });
  await assert.rejects(scripted(moved).client.runs.stop("x"), {
    name: "DstackError",
    status: 308,
    hint: "It points to https://server/x. Is the URL right, for instance its http or https?",
  });
  const page = new Response("<html>", { headers: { "Content-Type": "text/html" } });
  await assert.rejects(scripted(page).client.runs.stop("x"), {
    name: "DstackError",
    message: "The program at http://server is not a control plane: its response is not JSON.",
  });
});

test("patience has an end", async () => {
  const { client } = scripted(...Array.from({ length: 5 }, () => "ECONNREFUSED"));
  await assert.rejects(client.runs.get("x"), { message: "No server answers at http://server (ECONNREFUSED)." });
});

test("a refusal names the places that it is about", async () => {
  const detail = [{ msg: "a.b: no\nc: not that", code: "error", fields: ["a.b", "c"] }];
  await assert.rejects(scripted(json({ detail }, 400)).client.runs.get("x"), {
    status: 400,
    problems: [
      { path: "a.b", message: "no" },
      { path: "c", message: "not that" },
    ],
  });
  const problem = {
    title: "T",
    detail: "unknown key",
    code: "invalid",
    hint: "or `commands`?",
    errors: [{ pointer: "/groups/0/comands", detail: "unknown key" }],
  };
  const at = { params: { path: { project_name: "main", run_name: "x" } } };
  const call = scripted(json(problem, 422)).client.api.GET("/api/v1/projects/{project_name}/runs/{run_name}", at);
  await assert.rejects(answer(call), {
    code: "invalid",
    hint: "or `commands`?",
    problems: [{ path: "groups.0.comands", message: "unknown key" }],
  });
  const query = { ...problem, errors: [{ pointer: "", parameter: "limit", detail: "too large" }] };
  const asked = scripted(json(query, 400)).client.api.GET("/api/v1/projects/{project_name}/runs/{run_name}", at);
  await assert.rejects(answer(asked), { problems: [{ path: "limit", message: "too large" }] });
  const missing = json({ detail: [{ msg: "None.", code: "resource_not_exists" }] }, 400);
  await assert.rejects(scripted(missing).client.runs.get("x"), (error) => error instanceof DstackError && error.notFound);
});

test("waiting ends with the run", async () => {
  const failed = { status: "failed", message: "exit 3", error: null, run_spec: { run_name: "x" } };
  const { client } = scripted(json({ status: "running" }), json(failed));
  await assert.rejects(client.runs.wait("x", "done"), new NotReached("The run x failed: exit 3."));
  const endless = scripted(json({ status: "running", status_message: "running" }));
  await assert.rejects(endless.client.runs.wait("x", "done", { timeout: 0 }), NotReached);
});

test("a list and a log are read page by page, and nothing twice", async () => {
  const rows = Array.from({ length: 150 }, (_, place) => ({ id: `${place}`, submitted_at: `at ${place}` }));
  const listed = scripted(json(rows.slice(0, 100)), json(rows.slice(100)));
  assert.deepEqual(await all(listed.client.runs.list()), rows);
  assert.equal((await listed.sent[1]!.json()).prev_run_id, "99");

  const job = { job_spec: { job_num: 0, replica_num: 0 }, job_submissions: [{ id: "a", status: "running" }] };
  const run = (status: string) => json({ status, jobs: [job] });
  const page = (next_token: string | null, ...texts: string[]) =>
    json({ next_token, logs: texts.map((text) => ({ message: btoa(text) })) });
  const answers = [run("running"), page("1", "a"), page(null, "b"), run("done"), page(null, "b", "c")];
  const pieces = await all(scripted(...answers).client.runs.logs("x", { follow: true }));
  assert.equal(Buffer.concat(pieces).toString(), "abc");
});

test("a log stays with its replica", async () => {
  const answers = [["provisioning", "running"], ["running", "running"], ["done", "failed"]].flatMap((statuses) => {
    const jobs = statuses.map((status, replica_num) => ({
      job_spec: { job_num: 0, replica_num },
      job_submissions: [{ id: `s${replica_num}`, status }],
    }));
    return [
      json({ status: statuses.includes("done") ? "done" : "running", jobs }),
      json({ next_token: null, logs: [{ message: btoa("a") }] }),
    ];
  });
  const { client, sent } = scripted(...answers);
  assert.equal(Buffer.concat(await all(client.runs.logs("x", { follow: true }))).toString(), "a");
  const read = await Promise.all(sent.filter(({ url }) => url.endsWith("/poll")).map((request) => request.json()));
  assert.deepEqual(read.map(({ job_submission_id }) => job_submission_id), ["s1", "s1", "s1"]);
});

test("many submissions are bounded, and a refused one keeps no other", async () => {
  let going = 0;
  let most = 0;
  const client = new Client({
    url: "http://server",
    token: "token",
    project: "main",
    fetch: async (request) => {
      most = Math.max(most, ++going);
      const { name } = (await request.json()).plan.run_spec.configuration;
      going--;
      return name === "3" ? json({ detail: [{ msg: "No.", code: "error" }] }, 400) : json({ id: name });
    },
  });
  const configurations = Array.from({ length: 20 }, (_, place) => ({ type: "task" as const, name: `${place}` }));
  const results = await client.runs.submitMany(configurations, { atOnce: 4 });
  assert.ok(most <= 4 && most > 1);
  assert.deepEqual(results.map((result) => (result instanceof Error ? result.message : result.id)).slice(2, 5), ["2", "No.", "4"]);
});

async function all<T>(items: AsyncIterable<T>): Promise<T[]> {
  const found: T[] = [];
  for await (const item of items) {
    found.push(item);
  }
  return found;
}
