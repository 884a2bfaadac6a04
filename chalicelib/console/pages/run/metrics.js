// What a job used of its machine. All charts share one crosshair and one range; what happened is marked on each.
import { setQuery } from "../../app/router.js";
import { get } from "../../data/api.js";
import { usePolling } from "../../data/live.js";
import { Button } from "../../kit/button.js";
import { Chart } from "../../kit/chart.js";
import { Empty, Loading } from "../../kit/empty.js";
import { SelectField } from "../../kit/fields.js";
import { Failed } from "../../kit/notice.js";
import { html, useMemo, useRef, useState } from "../../kit/preact.js";
import { runPath } from "../../lib/run_facts.js";
import { chartsOf, inUnit, merged } from "../../lib/series.js";
import { marksOf } from "../../lib/timeline.js";

/** @typedef {import("../../types").Run} Run */

/** @type {[string, string][]} */
const RANGES = [["1h", "last hour"], ["6h", "last 6 hours"], ["24h", "last 24 hours"], ["all", "all of it"]];
const HOURS = /** @type {Record<string, number>} */ ({ "1h": 1, "6h": 6, "24h": 24 });
const POINTS = 1000, PAGES = 5; // of an answer; answers for a range
const EVERY = 10; // seconds

/** @param {{run: Run, events: import("../../types").Event[], query: Record<string, string>}} props */
export function Metrics({ run, events, query }) {
  const job = run.jobs.find((each) => each.name === query.of) ?? run.jobs[0];
  const range = HOURS[query.range ?? ""] || query.range === "all" ? /** @type {string} */ (query.range) : "1h";
  if (!job) return html`<${Empty} title="It has no job yet." next=${run.why ?? "Its metrics begin with its first job."} />`;
  return html`<div class="metrics-tools">
      <${SelectField} label="Range" hideLabel value=${range} options=${RANGES} onInput=${(/** @type {string} */ value) => setQuery({ range: value, from: null, to: null })} />
      ${run.jobs.length > 1 && html`<${SelectField} label="Job" hideLabel value=${job.name} options=${run.jobs.map((each) => each.name)} onInput=${(/** @type {string} */ of) => setQuery({ of })} />`}
      ${query.from && html`<${Button} small onClick=${() => setQuery({ from: null, to: null })}>Whole range<//>`}
      <span class="soft">Drag over a chart to see a part of it.</span>
    </div>
    <${JobCharts} key=${`${job.id} ${range}`} run=${run} job=${job} range=${range} events=${events} query=${query} />`;
}

/** @param {{run: Run, job: import("../../types").Job, range: string, events: import("../../types").Event[], query: Record<string, string>}} props */
function JobCharts({ run, job, range, events, query }) {
  const { metrics, error, reload } = usePoints(run, job, range);
  const marks = useMemo(() => marksOf(events), [events]);
  const charts = useMemo(() => (metrics ? chartsOf(metrics, metrics.items) : []), [metrics]);
  if (!metrics) return error ? html`<${Failed} error=${error} retry=${reload} />` : html`<${Loading} />`;
  if (charts.length === 0) return html`<${Empty} title="There are no metrics in this time." next=${job.instance ? "The first come within half a minute of its start." : "It has had no machine yet."} />`;
  const part = /** @type {[number, number] | null} */ (query.from && query.to ? [Number(query.from), Number(query.to)] : null);
  const onRange = (/** @type {[number, number] | null} */ next) => setQuery({ from: next && Math.round(next[0]), to: next && Math.round(next[1]) });
  return html`<${Failed} error=${error} retry=${reload} /><div class="charts">${charts.map((chart) => html`<${Chart} key=${chart.id} label=${chart.title} series=${chart.lines}
    crosshair=${`run ${run.id}`} range=${part} onRange=${onRange} marks=${marks} max=${chart.most ?? undefined} format=${(/** @type {number} */ value) => inUnit(value, chart.unit)} />`)}</div>`;
}

/** @param {Run} run @param {import("../../types").Job} job @param {string} range */
function usePoints(run, job, range) {
  const [state, setState] = useState(/** @type {{metrics: import("../../types").Metrics | null, error: any}} */ ({ metrics: null, error: null }));
  const points = useRef(/** @type {import("../../types").Metrics["items"]} */ ([]));
  const load = async () => {
    try {
      const last = points.current.at(-1)?.at;
      const since = last ?? (HOURS[range] ? new Date(Date.parse(job.finished_at ?? new Date().toISOString()) - HOURS[range] * 3_600_000).toISOString() : undefined);
      const found = await read(run, job, since);
      points.current = merged(points.current, found.items);
      setState({ metrics: { ...found, items: points.current }, error: null });
    } catch (error) {
      setState((before) => ({ ...before, error }));
    }
  };
  usePolling(load, job.finished_at ? 3600 : EVERY, [run.id, job.id, range]);
  return { ...state, reload: load };
}

/** @param {Run} run @param {import("../../types").Job} job @param {string | undefined} since */
async function read(run, job, since) {
  const asked = { replica: job.replica, node: job.node, since, limit: POINTS };
  let page = /** @type {import("../../types").Metrics} */ (await get(`${runPath(run)}/metrics`, asked));
  const items = [...page.items];
  for (let number = 1; number < PAGES && page.items.length === POINTS; number++) {
    page = await get(`${runPath(run)}/metrics`, { ...asked, until: page.items.at(-1)?.at });
    items.push(...page.items);
  }
  return { ...page, items };
}
