// One machine: what it is, who has its blocks, how its health was, and what happened on it.
import { go, link } from "../../app/router.js";
import { get, send } from "../../data/api.js";
import { refresh, useCollection } from "../../data/live.js";
import { useSession } from "../../data/session.js";
import { Button } from "../../kit/button.js";
import { Copied } from "../../kit/code.js";
import { confirm } from "../../kit/dialog.js";
import { Empty, Loading } from "../../kit/empty.js";
import { Money } from "../../kit/money.js";
import { Failed, Notice } from "../../kit/notice.js";
import { Facts, Page, Section } from "../../kit/page.js";
import { html, useEffect, useMemo, useState } from "../../kit/preact.js";
import { Status } from "../../kit/status.js";
import { Ago, Lasted } from "../../kit/time.js";
import { toast, toastFailure } from "../../kit/toast.js";
import { gpusText, sizeText, stateOf, troubleOf } from "../../lib/machines.js";
import { counted, rate } from "../../lib/money.js";
import { Blocks } from "./blocks.js";
import { fleetPath, History } from "./fleet.js";

/** @typedef {import("../../types").Instance} Instance */

/** @param {{project: string, fleet: string, num: number}} props */
export function OneInstance({ project, fleet, num }) {
  const { items, loading, error } = useCollection("instances", project);
  const runs = useCollection("runs", project).items;
  const byId = useMemo(() => new Map(runs.map((run) => [run.id, run])), [runs]);
  const back = { href: link(project, "fleets", fleet), text: fleet };
  const found = items.find((each) => each.fleet === fleet && each.num === num);
  if (!found) return html`<${Page} title=${`${fleet}-${num}`} back=${back}><${Failed} error=${error} />${loading ? html`<${Loading} />` : html`<${Empty} title="This machine is gone." next=${html`<a href=${link(project, "events", { target: `instance/${fleet}-${num}` })}>What happened to it</a>`} />`}<//>`;
  const trouble = troubleOf(found);
  const bad = found.unreachable || found.health === "failure";
  return html`<${Page} title=${found.name} back=${back} actions=${html`<${Delete} instance=${found} />`}>
    ${trouble && html`<${Notice} kind=${bad ? "bad" : found.health === "warning" ? "warn" : "info"}><p>${trouble}</p><//>`}
    <${Facts} items=${facts(found)} />
    <${Section} title="In use by" note=${found.blocks > 1 ? `${found.busy_blocks} of ${found.blocks} blocks. Each job has as many as it asks for.` : undefined}><${Blocks} instance=${found} runs=${byId} large /><//>
    <div class="columns"><${Section} title="Health in the last week"><${Health} instance=${found} /><//>
      <${Section} title="What happened"><${History} project=${project} of=${{ target: `instance/${found.name}` }} changed=${[found.status, found.claims.length]} /><//></div>
  <//>`;
}

/** @param {Instance} each @returns {[string, any][]} */
function facts(each) {
  return [
    ["Status", html`<${Status} ...${stateOf(each)} />`],
    ["GPUs", gpusText(each.resources.gpus) || "none"],
    ["Size", sizeText(each.resources)],
    ["Type", `${each.type}${each.spot ? ", spot" : ""}`],
    ["Where", [each.backend === "remote" ? "your own" : each.backend, each.backend === "remote" ? null : (each.zone ?? each.region)].filter(Boolean).join(" ")],
    ["Address", each.hostname && html`<${Copied} text=${each.hostname} />`],
    ["Price", html`<${Money} usd=${each.price_per_hour_usd} hourly />`],
    ["Created", html`<${Ago} at=${each.created_at} />`],
    ["First report after", each.started_at && html`<${Lasted} from=${each.created_at} to=${each.started_at} />`],
    ["Idle for", each.idle_since && each.status === "idle" && html`<${Lasted} from=${each.idle_since} />`],
  ];
}

/** @param {{instance: Instance}} props */
function Health({ instance }) {
  const [state, setState] = useState(/** @type {{items: any[] | null, error: any}} */ ({ items: null, error: null }));
  useEffect(() => {
    get(`${fleetPath(instance.project, instance.fleet ?? "")}/instances/${instance.num}/health`).then(({ items }) => setState({ items, error: null }), (error) => setState({ items: null, error }));
  }, [instance.id, instance.health, instance.health_why]);
  const { items, error } = state;
  if (error || !items) return error ? html`<${Failed} error=${error} />` : html`<${Loading} />`;
  if (items.length === 0) return html`<${Empty} title="Nothing was wrong." next="Its agent reports when GPUs, disks or drivers have trouble." />`;
  return html`<ol class="checks-list">${items.map((check) => html`<li key=${check.at}><span class="soft"><${Ago} at=${check.at} /></span><${Status} value=${check.status} />
    <span class="check-why">${check.troubles.length === 0 ? "nothing wrong" : check.troubles.map((/** @type {any} */ each) => html`<span key=${each.why}>${each.why}</span>`)}</span></li>`)}</ol>`;
}

/** @param {{instance: Instance}} props */
function Delete({ instance }) {
  const { can } = useSession(instance.project);
  const { project, fleet } = instance;
  if (!can("fleets", project) || instance.status === "terminating" || !fleet) return null;
  const path = `${fleetPath(project, fleet)}/instances/${instance.num}`;
  const remove = async () => {
    const jobs = instance.claims.length > 0 ? ` ${counted(instance.claims.length, "job")} on it end, and may be submitted again elsewhere.` : "";
    const saves = instance.price_per_hour_usd > 0 ? ` That saves ${rate(instance.price_per_hour_usd)}.` : "";
    if (!(await confirm({ title: `Delete ${instance.name}?`, text: `The machine ends.${jobs}${saves} The fleet may get another in its place.`, action: "Delete", danger: true }))) return;
    try {
      await send("DELETE", path);
      toast(`${instance.name} is being deleted.`);
      await refresh("instances", project);
      go(link(project, "fleets", fleet));
    } catch (error) {
      toastFailure(error);
    }
  };
  return html`<${Button} icon="trash" onClick=${remove}>Delete<//>`;
}
