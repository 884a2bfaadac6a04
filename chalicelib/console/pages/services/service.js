// One service: who may call it and where, how many replicas there are and why, its requests, its versions, and its model.
import { link } from "../../app/router.js";
import { get } from "../../data/api.js";
import { useItem, usePolling } from "../../data/live.js";
import { useSession } from "../../data/session.js";
import { Button } from "../../kit/button.js";
import { Chart } from "../../kit/chart.js";
import { Copied } from "../../kit/code.js";
import { Empty, Loading } from "../../kit/empty.js";
import { Meter } from "../../kit/meter.js";
import { Failed } from "../../kit/notice.js";
import { Facts, Page, Section } from "../../kit/page.js";
import { html, useRef, useState } from "../../kit/preact.js";
import { Status } from "../../kit/status.js";
import { Table } from "../../kit/table.js";
import { Tabs } from "../../kit/tabs.js";
import { Ago } from "../../kit/time.js";
import { Words } from "../../kit/words.js";
import { hasEnded, runPath } from "../../lib/run_facts.js";
import { addressOf, decisionOf, desiredOf, duration, greatest, lastMinute, nextChanges, number, points, readyOf, remembered, ruleOf, shares, standing, times } from "../../lib/services.js";
import { BASE } from "./index.js";
import { Rollout } from "./rollout.js";
import { Calls, TryIt } from "./try_it.js";

/** @typedef {import("../../types").Service} Service */

const EVERY = 5; // seconds between looks at the service that is open
const SHOWN = 5 * 60_000; // milliseconds of traffic in the chart at first, which is what its doors keep
const KEPT = 30 * 60_000; // and after the page has been open for a while

/** @param {{project: string, name: string, query: Record<string, string>}} props */
export function OneService({ project, name, query }) {
  const { service, run, error, history, answers, reload } = useService(project, name);
  const { can } = useSession(project);
  const back = { href: link(project, "services"), text: "Services" };
  if (error?.status === 404) return html`<${Page} title=${name} back=${back}><${Empty} title=${error.detail} next=${html`<a href=${link(project, "runs")}>See the runs</a>`} /></${Page}>`;
  if (!service || !run) return html`<${Page} title=${name} back=${back}><${Failed} error=${error} retry=${reload} />${!error && html`<${Loading} />`}</${Page}>`;
  const tab = ["replicas", "rollout", "try", "call"].includes(query.tab ?? "") ? /** @type {string} */ (query.tab) : "scaling";
  const tabs = [
    ["scaling", "Scaling"], ["replicas", "Replicas"], ["rollout", "Rollout"], ...(service.model ? [["try", "Try it"]] : []), ["call", "Call it"],
  ].map(([key = "", title]) => ({ key, title, href: link(project, "services", name, { tab: key === "scaling" ? null : key }) }));
  const actions = html`<${Button} icon="runs" href=${link(project, "runs", name)}>Run</${Button}>
    ${can("run", project) && html`<${Button} icon="launch" href=${link(project, "launch", { change: name })}>Change</${Button}>`}`;
  return html`<${Page} title=${name} back=${back} actions=${actions}>
    <p class="run-line"><${Status} value=${run.status} />${run.why && html`<span><${Words} text=${run.why} /></span>`}</p>
    <${Failed} error=${error} />
    <${Head} service=${service} />
    <${Tabs} label="Parts of the service" tabs=${tabs} current=${tab} />
    ${tab === "scaling" && html`<${Scaling} service=${service} history=${history} answers=${answers} />`}
    ${tab === "replicas" && html`<${Replicas} service=${service} project=${project} />`}
    ${tab === "rollout" && html`<${Rollout} project=${project} service=${service} ended=${hasEnded(run)} reload=${reload} />`}
    ${tab === "try" && (service.model ? html`<${TryIt} service=${service} model=${service.model} />` : html`<${Empty} title="This service has no model to try." />`)}
    ${tab === "call" && html`<${Calls} service=${service} />`}
  </${Page}>`;
}

/** @param {string} project @param {string} name */
function useService(project, name) {
  const [state, setState] = useState(/** @type {{service: Service | null, run: any, error: any}} */ ({ service: null, run: null, error: null }));
  const history = useRef(new Map()), answers = useRef(new Map());
  const path = runPath({ project, name });
  const reload = async () => {
    try {
      const [service, run] = await Promise.all([get(`${path}/service`), get(path)]);
      history.current = remembered(history.current, service.traffic.items, Date.now() - KEPT);
      setState({ service, run, error: null });
    } catch (error) {
      setState((was) => ({ ...was, error }));
    }
  };
  const { item } = useItem("runs", project, name);
  const changed = item ? [item.id, item.status, item.why, item.revision, JSON.stringify(item.replicas)].join(" ") : ""; // that is on screen at once
  usePolling(reload, EVERY, [project, name, changed]);
  return { ...state, history: history.current, answers: answers.current, reload };
}

/** @param {{service: Service}} props */
function Head({ service }) {
  const { traffic } = service, { rate, busy, seconds } = lastMinute(service, Date.now());
  const ready = readyOf(service), desired = desiredOf(service);
  return html`<section class="section" aria-label="At a glance"><${Facts} items=${[
    ["Ready", html`<${Meter} value=${ready} of=${Math.max(ready, desired, 1)} label="Replicas that are ready" text=${`${ready} of ${desired}`} />`],
    ["Requests, last minute", html`<span class="number">${number(rate)}/s</span>`],
    ["Under way", html`<span class="number">${number(busy)}</span>`],
    ["First byte after", traffic.first_byte && html`<${Shares} found=${traffic.first_byte} />`],
    ["A request takes", traffic.whole ? html`<${Shares} found=${traffic.whole} />` : seconds === null ? "–" : html`<span class="number" title="On average: requests under way, divided by requests a second.">${duration(seconds)}</span>`],
    ["Held until there is a replica", html`<span class="number">${service.traffic.held}</span>`],
    ["Callers", service.auth ? "Members of the project, and service tokens" : "Everybody"],
    ["Model", service.model && html`<code>${service.model.name}</code>`],
    ["Tokens read and written", service.model && html`<span class="number">${service.traffic.prompt_tokens.toLocaleString("en")} / ${service.traffic.completion_tokens.toLocaleString("en")}</span>`],
    ["Address", html`<${Copied} text=${addressOf(service.url, BASE)} />`],
  ]} /></section>`;
}

/** @param {{found: Service["traffic"]["whole"]}} props */
const Shares = ({ found }) => html`<span title="Half, 95 % and 99 % of the last minute’s answers.">${shares(found)?.map((each) => html`<span class="number">${each}</span> `)}</span>`;

/** @param {{service: Service, history: Map<number, any>, answers: Map<number, any>}} props */
function Scaling({ service, history, answers }) {
  const now = Date.now(), first = Math.min(now - SHOWN, ...history.keys());
  const { rate, busy } = points(history, first, now);
  const lines = /** @type {const} */ ([["First byte after", "first_byte"], ["A request takes", "whole"]]).map(([label, kind]) => /** @type {const} */ ([label, times(answers, service.traffic.answers, kind, first, now)]));
  return html`<div class="columns">
    <${Section} title="Why there are as many">${service.groups.map((group) => html`<${Decision} key=${group.name} service=${service} group=${group} alone=${service.groups.length === 1} />`)}</${Section}>
    <${Section} title="Requests">
      <${Chart} label="Requests a second" crosshair="service" series=${[{ label: "requests/s", points: rate }]} format=${number} />
      <${Chart} label="Under way or held" crosshair="service" series=${[{ label: "requests", points: busy }]} format=${number} />
      ${answers.size > 0 && lines.map(([label, series]) => html`<${Chart} key=${label} label=${label} crosshair="service" series=${series} format=${duration} max=${greatest(series)} height=${120} />`)}
      <p class="note">${service.traffic.reported_at === null ? "No request has come yet." : html`Counted in steps of ten seconds; last reported <${Ago} at=${service.traffic.reported_at} />.`}</p>
    </${Section}>
  </div>`;
}

/** @param {{service: Service, group: Service["groups"][number], alone: boolean}} props */
function Decision({ service, group, alone }) {
  const decision = decisionOf(group);
  const waits = group.wanted !== null && group.wanted !== group.desired;
  return html`<div class="decision">
    ${!alone && html`<h3>${group.name}</h3>`}
    <p><${Meter} value=${readyOf(service, group.name)} of=${Math.max(group.desired, 1)} label=${`Ready replicas of ${alone ? "the service" : group.name}`} text=${`${readyOf(service, group.name)} of ${group.desired} ready`} /></p>
    ${decision && html`<p class="decision-now"><${Words} text=${decision} /></p>`}
    ${waits && html`<p><${Status} value="waiting" text=${`${group.wanted} would be right; a delay isn’t over.`} /></p>`}
    <p class="soft">${ruleOf(group)}</p>
    ${group.changed_at && html`<p class="soft">Last changed <${Ago} at=${group.changed_at} />.${nextChanges(group, Date.now()).map(({ what, at }) => html` ${what} <${Ago} at=${at} />.`)}</p>`}
  </div>`;
}

/** @param {{service: Service, project: string}} props */
function Replicas({ service, project }) {
  const columns = [
    { key: "num", title: "Replica", width: 6, value: (/** @type {any} */ replica) => replica.num, cell: (/** @type {any} */ replica) => html`<a href=${link(project, "runs", service.run, { tab: "logs", job: replica.job })}>${replica.num}</a>` },
    ...(service.groups.length > 1 ? [{ key: "group", title: "Group", width: 8, value: (/** @type {any} */ replica) => replica.group }] : []),
    { key: "status", title: "Status", width: 9, value: standing, cell: (/** @type {any} */ replica) => html`<${Status} value=${standing(replica)} />` },
    { key: "revision", title: "Revision", width: 6, align: /** @type {"right"} */ ("right"), value: (/** @type {any} */ replica) => replica.revision },
    { key: "ready", title: "Ready", width: 8, value: (/** @type {any} */ replica) => Date.parse(replica.ready_at ?? ""), cell: (/** @type {any} */ replica) => html`<${Ago} at=${replica.ready_at} />` },
    { key: "waiting", title: "Waiting inside", width: 8, wide: true, align: /** @type {"right"} */ ("right"), value: (/** @type {any} */ replica) => replica.waiting ?? "–" },
    { key: "why", title: "Why", wide: true, value: (/** @type {any} */ replica) => replica.why ?? "" },
  ];
  return html`<${Table} label="Replicas" columns=${columns} rows=${service.replicas} keyOf=${(/** @type {any} */ replica) => replica.job}
    empty=${html`<${Empty} title="It has no replicas now." next="Its first request starts one, and is held until that is ready." />`} />`;
}
