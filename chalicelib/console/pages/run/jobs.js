import { link } from "../../app/router.js";
import { get } from "../../data/api.js";
import { Empty } from "../../kit/empty.js";
import { Money } from "../../kit/money.js";
import { Section } from "../../kit/page.js";
import { html, useEffect, useState } from "../../kit/preact.js";
import { Status } from "../../kit/status.js";
import { Table } from "../../kit/table.js";
import { Lasted } from "../../kit/time.js";
import { toastFailure } from "../../kit/toast.js";
import { runPath } from "../../lib/run_facts.js";
import { where } from "./words.js";

/** @typedef {import("../../types").Job} Job */
/** @typedef {import("../../types").Run} Run */

/** @param {Run} run @returns {import("../../kit/table.js").Column[]} */
const columns = (run) => [
  { key: "name", title: "Job", cell: (/** @type {Job} */ job) => html`<a href=${link(run.project, "runs", run.name, { tab: "logs", job: job.id })}>${job.name}</a>` },
  { key: "status", title: "Status", width: 9, cell: (/** @type {Job} */ job) => html`<${Status} value=${job.status} />` },
  { key: "why", title: "Why", cell: (/** @type {Job} */ job) => html`<span title=${job.why}>${job.why ?? ""}</span>` },
  { key: "machine", title: "Machine", width: 10, cell: (/** @type {Job} */ job) => job.instance && html`<a title=${where(job.instance)} href=${link(run.project, "fleets", job.instance.fleet)}>${job.instance.name}</a>` },
  { key: "price", title: "Price", width: 6, align: "right", wide: true, cell: (/** @type {Job} */ job) => html`<${Money} usd=${job.instance?.price_per_hour_usd} hourly />` },
  { key: "lasted", title: "Lasted", width: 6, align: "right", cell: (/** @type {Job} */ job) => html`<${Lasted} from=${job.submitted_at} to=${job.finished_at} />` },
  { key: "exit", title: "Exit", width: 4, align: "right", cell: (/** @type {Job} */ job) => job.exit_status ?? "" },
];

/** @param {{run: Run}} props */
export function Jobs({ run }) {
  const earlier = useEarlier(run);
  return html`<${Table} label="Jobs" columns=${columns(run)} rows=${run.jobs} keyOf=${(/** @type {Job} */ job) => job.id}
      empty=${html`<${Empty} title="It has no job yet." next=${run.why} />`} />
    ${earlier.length > 0 && html`<${Section} title="Earlier attempts" flush><${Table} label="Earlier attempts" columns=${[ATTEMPT, ...columns(run)]} rows=${earlier} keyOf=${(/** @type {Job} */ job) => job.id} /><//>`}`;
}

/** @type {import("../../kit/table.js").Column} */
const ATTEMPT = { key: "attempt", title: "Attempt", width: 5, align: "right", cell: (/** @type {Job} */ job) => job.attempt + 1 };

/** The attempts before the latest, newest first. @param {Run} run @returns {Job[]} */
function useEarlier(run) {
  const [jobs, setJobs] = useState(/** @type {Job[]} */ ([]));
  const latest = run.jobs.map((job) => job.id).join();
  const more = run.jobs.some((job) => job.attempt > 0);
  useEffect(() => {
    const leaving = new AbortController();
    if (more) get(`${runPath(run)}/jobs`, { limit: 100 }, { signal: leaving.signal }).then(({ items }) => setJobs(items), (error) => !leaving.signal.aborted && toastFailure(error));
    return () => leaving.abort();
  }, [run.id, latest]);
  return jobs.filter((job) => !latest.includes(job.id));
}
