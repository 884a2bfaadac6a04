import { link } from "../../app/router.js";
import { get } from "../../data/api.js";
import { usePolling } from "../../data/live.js";
import { Facts, Section } from "../../kit/page.js";
import { html, useMemo, useState } from "../../kit/preact.js";
import { Ago, Lasted } from "../../kit/time.js";
import { Money } from "../../kit/money.js";
import { Words } from "../../kit/words.js";
import { LogLines } from "../../lib/log_lines.js";
import { hasEnded, runPath } from "../../lib/run_facts.js";
import { bytes, merged } from "../../lib/series.js";
import { hourly } from "./cost.js";
import { TailLines } from "./tail.js";
import { AllJobs, Timeline } from "./timeline.js";
import { Why } from "./why.js";
import { leadJob } from "./words.js";

/** @typedef {import("../../types").Run} Run */

const PIECES = 100; // of the log, in which its last lines are
const STARTED = ["running", "terminating", "terminated", "failed", "done", "aborted"];

/** @param {{run: Run, events: import("../../types").Event[]}} props */
export function Summary({ run, events }) {
  const job = leadJob(run.jobs);
  return html`${job && html`<${Timeline} run=${run} job=${job} events=${events} />`}
    ${run.jobs.length > 1 && html`<${AllJobs} run=${run} events=${events} />`}
    <${Why} run=${run} />
    <div class="run-columns">
      ${job?.instance && STARTED.includes(job.status) ? html`<${Tail} run=${run} job=${job} />` : html`<${NoLog} ended=${hasEnded(run)} />`}
      <div class="run-side"><${Usage} run=${run} /><${About} run=${run} /></div>
    </div>`;
}

/** @param {{ended: boolean}} props */
const NoLog = ({ ended }) => html`<${Section} title="Log"><p class="soft">${ended ? "It never ran, so it wrote nothing." : "Its output is shown here once it runs."}</p><//>`;

/** @param {{run: Run, job: import("../../types").Job}} props */
function Tail({ run, job }) {
  const [lines, setLines] = useState(/** @type {LogLines | null} */ (null));
  const load = async () => {
    const page = /** @type {any} */ (await get(`${runPath(run)}/logs`, { job: job.id, limit: PIECES, newest_first: true }).catch(() => null));
    if (!page) return; // the tab Logs says what is wrong
    const found = new LogLines();
    for (const { at, text } of page.items.reverse()) found.add(at, text);
    setLines(found);
  };
  usePolling(load, job.finished_at ? 3600 : 2, [job.id, job.finished_at]);
  const href = link(run.project, "runs", run.name, { tab: "logs" });
  return html`<${Section} title="Log" actions=${html`<a href=${href}>All of the log</a>`}>
    ${lines === null ? html`<p class="soft">Reading …</p>` : html`<${TailLines} lines=${lines} />`}<//>`;
}

// What it uses now, in a word each: the tab has the history.
/** @param {{run: Run}} props */
function Usage({ run }) {
  const [metrics, setMetrics] = useState(/** @type {import("../../types").Metrics | null} */ (null));
  const runs = run.status === "running";
  const load = async () => {
    if (runs) setMetrics(await get(`${runPath(run)}/metrics`, { limit: 1 }).catch(() => null));
  };
  usePolling(load, runs ? 10 : 3600, [run.id, runs]);
  const point = useMemo(() => (metrics ? merged([], metrics.items)[0] : undefined), [metrics]);
  if (!metrics || !point) return null;
  const gpus = point.gpus.filter((gpu) => gpu.percent !== null);
  const mean = gpus.reduce((sum, gpu) => sum + (gpu.percent ?? 0), 0) / gpus.length;
  return html`<${Section} title="Use now" actions=${html`<a href=${link(run.project, "runs", run.name, { tab: "metrics" })}>Metrics</a>`}>
    <${Facts} items=${[
      ["GPU", gpus.length > 0 ? `${Math.round(mean)} %${gpus.length > 1 ? ` on average of ${gpus.length}` : ""}` : null],
      ["CPU", `${(point.cpu_percent / 100).toFixed(1)}${metrics.cpus ? ` of ${metrics.cpus} cores` : " cores"}`],
      ["Memory", `${bytes(point.memory_bytes)}${metrics.memory_total_bytes ? ` of ${bytes(metrics.memory_total_bytes)}` : ""}`],
    ]} /><//>`;
}

/** @param {{run: Run}} props */
function About({ run }) {
  const spec = /** @type {any} */ (run.spec);
  return html`<${Section} title="About"><${Facts} items=${[
    ["Kind", KINDS[spec.type] ?? spec.type],
    ["User", run.user],
    ["Submitted", html`<${Ago} at=${run.submitted_at} />`],
    [hasEnded(run) ? "Lasted" : "Age", html`<${Lasted} from=${run.submitted_at} to=${run.finished_at} />`],
    ["Next start", run.next_start_at && html`<${Ago} at=${run.next_start_at} />`],
    ["Fleet", run.fleet && html`<a href=${link(run.project, "fleets", run.fleet)}>${run.fleet}</a>`],
    ["Price", hourly(run) > 0 ? html`<${Money} usd=${hourly(run)} hourly />` : null],
    ["Priority", run.priority || null],
    ["Changed", run.revision > 0 ? `${run.revision} ${run.revision === 1 ? "time" : "times"}${run.changed_by ? `, last by ${run.changed_by}` : ""}` : null],
    ["Stopped by", run.stopped_by],
    ["Exit status", exitText(run)],
    ["Says", run.why && (run.status === "running" || run.status === "done") ? html`<${Words} text=${run.why} />` : null],
  ]} /><//>`;
}

/** @type {Record<string, string>} */
const KINDS = { task: "task", service: "service", "dev-environment": "dev environment" };

/** @param {Run} run */
const exitText = (run) => [...new Set(run.jobs.flatMap((job) => (job.exit_status === null ? [] : [job.exit_status])))].join(", ") || null;
