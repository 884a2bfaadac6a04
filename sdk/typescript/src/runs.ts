/** Runs: tasks, services and dev environments. */

import { answerAs, type Calls } from "./calls.js";
import { NotReached } from "./errors.js";
import { KEY } from "./retries.js";
import type { components } from "./schema.js";

export type Run = components["schemas"]["Run"];
export type RunPlan = components["schemas"]["RunPlan"];
type LogPage = components["schemas"]["LogPage"];
type Job = components["schemas"]["Job"];
type Submission = components["schemas"]["Submission"];

/** What you would write into a `*.dstack.yml`. */
export type Configuration = { type: "task" | "service" | "dev-environment" } & Record<string, unknown>;

/** `running`: it runs, or did; `finished`: it ended in whatever way. */
export type Stage = "running" | "done" | "finished";

const FINISHED = ["terminated", "failed", "done"];
const BEFORE_LOG = ["submitted", "provisioning", "pulling"];
const PAGE = 100; // runs
const RECORDS = 1000; // of a log
const SOON = 200; // milliseconds between looks at a run that has just changed
const SOON_LOOKS = 50;
const LATER = 1000;

export class Runs {
  constructor(private readonly calls: Calls) {}

  private get at() {
    return { path: { project_name: this.calls.project } };
  }

  /** What `apply` would do, and with which offers. Nothing is changed. */
  plan(configuration: Configuration): Promise<RunPlan> {
    const body = { run_spec: specOf(configuration), max_offers: 1 };
    return answerAs<RunPlan>(this.calls.api.POST("/api/project/{project_name}/runs/get_plan", { params: this.at, body }));
  }

  /** Submits the run, or changes the live one of this name. */
  async apply(configuration: Configuration): Promise<Run> {
    const { run_spec, current_resource: current } = await this.plan(configuration);
    const live = current !== null && !FINISHED.includes(current.status);
    return this.send(run_spec, live ? { id: current.id, deployment_num: current.deployment_num } : null);
  }

  /** Submits a run, without a plan. */
  submit(configuration: Configuration): Promise<Run> {
    return this.send(specOf(configuration), null);
  }

  /** Submits them all, `atOnce` at a time. In the place of one that is refused is the error. */
  async submitMany(configurations: readonly Configuration[], { atOnce = 16 } = {}): Promise<(Run | Error)[]> {
    const results: (Run | Error)[] = [];
    let next = 0;
    const worker = async (): Promise<void> => {
      for (let place = next++; place < configurations.length; place = next++) {
        results[place] = await this.submit(configurations[place]!).catch((error: Error) => error);
      }
    };
    await Promise.all(Array.from({ length: Math.min(atOnce, configurations.length) }, worker));
    return results;
  }

  get(name: string): Promise<Run> {
    const body = { run_name: name };
    return answerAs<Run>(this.calls.api.POST("/api/project/{project_name}/runs/get", { params: this.at, body }));
  }

  /** Runs, newest first; pages are fetched as they are needed. */
  async *list({ onlyActive = false } = {}): AsyncGenerator<Run, void, undefined> {
    let after = {};
    for (;;) {
      const body = { project_name: this.calls.project, only_active: onlyActive, limit: PAGE, ...after };
      const page = await answerAs<Run[]>(this.calls.api.POST("/api/runs/list", { body }));
      yield* page;
      const last = page.at(-1);
      if (last === undefined || page.length < PAGE) {
        return;
      }
      after = { prev_submitted_at: last.submitted_at, prev_run_id: last.id };
    }
  }

  /** Stops a run: its jobs get time to end. `abort` ends them at once. */
  async stop(name: string, { abort = false } = {}): Promise<void> {
    const body = { runs_names: [name], abort };
    await answerAs<null>(this.calls.api.POST("/api/project/{project_name}/runs/stop", { params: this.at, body }));
  }

  /** Deletes a run that has ended. */
  async delete(name: string): Promise<void> {
    const body = { runs_names: [name] };
    await answerAs<null>(this.calls.api.POST("/api/project/{project_name}/runs/delete", { params: this.at, body }));
  }

  /** Waits until the run is there, for `timeout` milliseconds at most. Throws NotReached if it can't get there. */
  async wait(name: string, until: Stage = "finished", { timeout = Infinity } = {}): Promise<Run> {
    const begun = this.calls.now();
    for (const pace = new Pace(); ; ) {
      const run = await this.get(name);
      if (arrived(run, until)) {
        return run;
      }
      if (this.calls.now() - begun >= timeout) {
        throw new NotReached(`The run ${name} is still ${run.status_message} after ${timeout} ms.`);
      }
      await this.calls.sleep(pace.after(run.status));
    }
  }

  /**
   * What a job of the run has written, in pieces. `follow`: goes on as it grows, over retries, until the run has ended.
   */
  async *logs(
    name: string,
    { follow = false, replica, job = 0 }: { follow?: boolean; replica?: number; job?: number } = {},
  ): AsyncGenerator<Uint8Array, void, undefined> {
    let log: Log | undefined;
    for (const pace = new Pace(); ; ) {
      const run = await this.get(name);
      const chosen = jobOf(run, job, replica);
      const latest = newest(chosen);
      if (latest !== undefined && latest.id !== log?.submission && !BEFORE_LOG.includes(latest.status)) {
        yield* log?.drain() ?? [];
        log = new Log(this.calls, name, latest.id);
        replica = chosen?.job_spec.replica_num; // the log stays that of one
      }
      yield* log?.drain() ?? [];
      if (!follow || FINISHED.includes(run.status)) {
        return;
      }
      await this.calls.sleep(pace.after(`${run.status} ${latest?.id} ${latest?.status}`));
    }
  }

  private send(run_spec: object, current_resource: { id: string; deployment_num: number } | null): Promise<Run> {
    const body = { plan: { run_spec: { ...run_spec }, current_resource }, force: false };
    const headers = { [KEY]: crypto.randomUUID() };
    return answerAs<Run>(this.calls.api.POST("/api/project/{project_name}/runs/apply", { params: this.at, body, headers }));
  }
}

/** The log of one submission. It only grows, so what was read is skipped when a page is read again. */
class Log {
  private token: string | null = null;
  private read = 0;

  constructor(
    private readonly calls: Calls,
    private readonly name: string,
    readonly submission: string,
  ) {}

  /** Everything that is there now. */
  async *drain(): AsyncGenerator<Uint8Array, void, undefined> {
    for (;;) {
      const params = { path: { project_name: this.calls.project } };
      const about = { run_name: this.name, job_submission_id: this.submission };
      const body = { ...about, next_token: this.token, limit: RECORDS };
      const page = await answerAs<LogPage>(this.calls.api.POST("/api/project/{project_name}/logs/poll", { params, body }));
      const data = Buffer.concat(page.logs.map((record) => Buffer.from(record.message, "base64")));
      if (data.length > this.read) {
        yield data.subarray(this.read);
        this.read = data.length;
      }
      if (page.next_token === null || page.next_token === this.token) {
        return;
      }
      [this.token, this.read] = [page.next_token, 0];
    }
  }
}

/** The pauses between looks: short for a while after a change, then longer. */
class Pace {
  private seen = "";
  private looks = 0;

  after(seen: string): number {
    this.looks = seen === this.seen ? this.looks + 1 : 0;
    this.seen = seen;
    return this.looks < SOON_LOOKS ? SOON : LATER;
  }
}

function specOf(configuration: Configuration) {
  return { repo_id: "none", repo_data: { repo_type: "virtual" }, configuration };
}

function arrived(run: Run, until: Stage): boolean {
  const ended = FINISHED.includes(run.status);
  if (!ended || until === "finished") {
    return until === "running" ? run.status === "running" : ended;
  }
  if (run.status === "done") {
    return true;
  }
  const why = run.message || run.error;
  throw new NotReached(`The run ${run.run_spec.run_name} ${run.status}${why ? `: ${why}` : ""}.`);
}

/** The job with this number; unless its replica is named, that of the lowest one that runs, else of the lowest. */
function jobOf(run: Run, number: number, replica: number | undefined): Job | undefined {
  const jobs = run.jobs
    .filter(({ job_spec }) => job_spec.job_num === number && (replica ?? job_spec.replica_num) === job_spec.replica_num)
    .sort((one, other) => one.job_spec.replica_num - other.job_spec.replica_num);
  return jobs.find((job) => newest(job)?.status === "running") ?? jobs[0];
}

function newest(job: Job | undefined): Submission | undefined {
  return job?.job_submissions.at(-1);
}
