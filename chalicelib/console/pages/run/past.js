// A run as it was at a moment of the last day. What it wrote and what happened to it end there, and nothing can be done.
import { link, setQuery } from "../../app/router.js";
import { get } from "../../data/api.js";
import { Empty, Loading } from "../../kit/empty.js";
import { Money } from "../../kit/money.js";
import { Failed } from "../../kit/notice.js";
import { Page, Section } from "../../kit/page.js";
import { html, useEffect, useState } from "../../kit/preact.js";
import { Status } from "../../kit/status.js";
import { clock } from "../../kit/time.js";
import { useStore } from "../../kit/use_store.js";
import { LogLines } from "../../lib/log_lines.js";
import { STEP, instantOf, instantText } from "../../lib/past.js";
import { runPath } from "../../lib/run_facts.js";
import { Events } from "../events/list.js";
import { useMarks, usePast } from "../past/states.js";
import { PastBanner, Travel } from "../past/travel.js";
import { TailLines } from "./tail.js";

const PIECES = 100; // of the log

/** @param {{project: string, name: string, query: Record<string, string>}} props */
export function PastRun({ project, name, query }) {
  const now = Math.floor(useStore(clock) / STEP) * STEP + STEP;
  const at = instantOf(query.at, Date.now());
  const { state, error } = usePast(project, at);
  const marks = useMarks(project).filter((mark) => mark.target.name === name);
  const run = state?.runs.find((each) => each.name === name);
  const onAt = (/** @type {number} */ next) => setQuery({ at: instantText(next) });
  return html`<${Page} title=${name} back=${{ href: link(project, "past", { at: query.at }), text: "Time travel" }}>
    <${PastBanner} at=${at} now=${Date.now()} present=${link(project, "runs", name)} final=${state?.final} />
    <${Travel} at=${at} now=${now} marks=${marks} state=${state} onAt=${onAt} />
    <${Failed} error=${error} />
    ${!state ? !error && html`<${Loading} />` : !run ? html`<${Empty} title="It wasn't there then." next="Go on in time, or back to now." />` : html`
      <p class="run-line"><${Status} value=${run.status} />${run.reason && html`<span>${run.reason.replaceAll("_", " ")}</span>`}
        ${run.price_per_hour_usd > 0 && html`<span><${Money} usd=${run.price_per_hour_usd} hourly /></span>`}</p>
      <${Section} title="Jobs"><ul class="plain">${run.jobs.map((job) => html`<li key=${job.name} class="row"><span>${job.name}</span><${Status} value=${job.status} />${job.instance && html`<span class="soft">on ${job.instance}</span>`}</li>`)}</ul><//>
      <${Then} project=${project} name=${name} run=${run.id} at=${at} />`}
  <//>`;
}

/** What it had written, and what had happened. @param {{project: string, name: string, run: string, at: number}} props */
function Then({ project, name, run, at }) {
  const [found, setFound] = useState(/** @type {{events: any[], lines: LogLines, error?: any}} */ ({ events: [], lines: new LogLines() }));
  useEffect(() => {
    const leaving = new AbortController();
    const until = new Date(at + 1).toISOString();
    const asked = { signal: leaving.signal };
    Promise.all([
      get(`/projects/${encodeURIComponent(project)}/events`, { run_id: run, until, limit: 50 }, asked),
      get(`${runPath({ project, name })}/logs`, { until, limit: PIECES, newest_first: true }, asked).catch(() => ({ items: [] })), // it has no job, or another run has its name now
    ]).then(([events, log]) => {
      const lines = new LogLines();
      for (const piece of log.items.reverse()) lines.add(piece.at, piece.text);
      setFound({ events: events.items, lines });
    }).catch((error) => !leaving.signal.aborted && setFound((before) => ({ ...before, error })));
    return () => leaving.abort();
  }, [project, name, run, at]);
  return html`<${Failed} error=${found.error} />
    <${Section} title="Log until then"><${TailLines} lines=${found.lines} /><//>
    <${Section} title="Events until then" flush><${Events} events=${found.events} project=${project} /><//>`;
}
