// A run: what it does, what it costs, why it waits, its output and its history.
import { morePages } from "../../app/more.js";
import { link } from "../../app/router.js";
import { Empty, Loading } from "../../kit/empty.js";
import { Money } from "../../kit/money.js";
import { Failed } from "../../kit/notice.js";
import { lazy } from "../../kit/lazy.js";
import { Page } from "../../kit/page.js";
import { html } from "../../kit/preact.js";
import { Status } from "../../kit/status.js";
import { Tabs } from "../../kit/tabs.js";
import { hasEnded } from "../../lib/run_facts.js";
import { Events } from "../events/list.js";
import { Actions } from "./actions.js";
import { Connect } from "./connect.js";
import { CostSoFar, hourly } from "./cost.js";
import { Jobs } from "./jobs.js";
import { Logs } from "./logs.js";
import { Summary } from "./summary.js";
import { useRun } from "./use_run.js";
import { placeText } from "./words.js";

const Metrics = lazy(() => morePages().then((more) => more.RunMetrics));
const PastRun = lazy(() => morePages().then((more) => more.PastRun));
const Spec = lazy(() => morePages().then((more) => more.RunSpec));

/** @typedef {import("../../types").Run} Run */
/** @typedef {import("../../types").Event} Event */

/** @type {Record<string, {title: string, show: (props: {run: Run, events: Event[], query: Record<string, string>, at: number, reload: () => Promise<void>}) => any}>} */
const TABS = {
  summary: { title: "Summary", show: (props) => html`<${Summary} ...${props} />` },
  logs: { title: "Logs", show: (props) => html`<${Logs} ...${props} />` },
  metrics: { title: "Metrics", show: (props) => html`<${Metrics} ...${props} />` },
  jobs: { title: "Jobs", show: (props) => html`<${Jobs} ...${props} />` },
  events: { title: "Events", show: ({ events, run }) => html`<${Events} events=${events} project=${run.project} />` },
  spec: { title: "Spec", show: (props) => html`<${Spec} ...${props} />` },
  connect: { title: "Connect", show: (props) => html`<${Connect} ...${props} />` },
};

/** @param {import("../../types").PageProps} props */
export default function RunPage({ project, parts, query }) {
  if (query.at) return html`<${PastRun} project=${project} name=${parts[0]} query=${query} />`;
  return html`<${OneRun} key=${`${project}/${parts[0]}`} project=${project} name=${parts[0]} query=${query} />`;
}

/** @param {{project: string, name: string, query: Record<string, string>}} props */
function OneRun({ project, name, query }) {
  const { run, events, error, at, reload } = useRun(project, name);
  const back = { href: link(project, "runs"), text: "Runs" };
  if (!run || error?.status === 404) return html`<${Page} title=${name} back=${back}>${error ? html`<${Missing} error=${error} reload=${reload} />` : html`<${Loading} />`}<//>`;
  const current = query.tab && TABS[query.tab] ? query.tab : "summary";
  const tab = /** @type {typeof TABS[string]} */ (TABS[current]);
  const tabs = Object.entries(TABS).map(([key, { title }]) => ({
    key, title, href: link(project, "runs", name, key === "summary" ? {} : { tab: key }), count: key === "jobs" && run.jobs.length > 1 ? run.jobs.length : undefined,
  }));
  return html`<${Page} title=${name} back=${back} actions=${html`<${Actions} run=${run} reload=${reload} />`}>
    <${Line} run=${run} at=${at} />
    <${Failed} error=${error} retry=${reload} />
    <${Tabs} label="Parts of the run" tabs=${tabs} current=${current} />
    ${tab.show({ run, events, query, at, reload })}
  <//>`;
}

/** What a reader wants to know at once. @param {{run: Run, at: number}} props */
function Line({ run, at }) {
  const place = placeText(run.jobs);
  const price = hourly(run);
  return html`<p class="run-line"><${Status} value=${run.status} />
    ${place && html`<span>${place}</span>`}
    ${price > 0 && html`<span><${Money} usd=${price} hourly /></span>`}
    <span><${CostSoFar} run=${run} at=${at} /> ${hasEnded(run) ? "in all" : "so far"}</span></p>`;
}

/** @param {{error: any, reload: () => Promise<void>}} props */
function Missing({ error, reload }) {
  if (error.status !== 404) return html`<${Failed} error=${error} retry=${reload} />`;
  return html`<${Empty} title="There is no run of this name." next="It may have been deleted: the page Events has its history." />`;
}

