// One gateway: its machines, its certificates with the days that are left, and what to enter at the domain's DNS.
import { go, link } from "../../app/router.js";
import { get, send } from "../../data/api.js";
import { refresh, useCollection, useItem } from "../../data/live.js";
import { useSession } from "../../data/session.js";
import { Button } from "../../kit/button.js";
import { Code, Copied } from "../../kit/code.js";
import { confirm } from "../../kit/dialog.js";
import { Empty, Loading } from "../../kit/empty.js";
import { Failed, Notice } from "../../kit/notice.js";
import { Facts, Page, Section } from "../../kit/page.js";
import { html, useEffect, useState } from "../../kit/preact.js";
import { Status } from "../../kit/status.js";
import { Table } from "../../kit/table.js";
import { Words } from "../../kit/words.js";
import { Ago } from "../../kit/time.js";
import { toast, toastFailure } from "../../kit/toast.js";
import { certificateState, dnsState } from "../../lib/machines.js";
import { counted } from "../../lib/money.js";
import { History } from "../fleets/fleet.js";
import { Dns, State } from "./index.js";

/** @typedef {import("../../types").Gateway} Gateway */
/** @typedef {import("../../types").GatewaySummary} GatewaySummary */

/** @param {string} project @param {string} name */
const pathOf = (project, name) => `/projects/${encodeURIComponent(project)}/gateways/${encodeURIComponent(name)}`;

/** @param {{project: string, name: string}} props */
export function OneGateway({ project, name }) {
  const { item, loading, error } = useItem("gateways", project, name);
  const { items: runs } = useCollection("runs", project);
  const [detail, setDetail] = useState(/** @type {Gateway | null} */ (null));
  useEffect(() => {
    if (item) get(pathOf(project, name)).then(setDetail, () => setDetail(null)); // the summary is shown without
  }, [item]);
  const back = { href: link(project, "gateways"), text: "Gateways" };
  if (!item) return html`<${Page} title=${name} back=${back}><${Failed} error=${error} />${loading ? html`<${Loading} />` : html`<${Empty} title="There is no gateway of this name." next="It may have been deleted: the page Events has its history." />`}<//>`;
  const served = runs.filter((run) => run.service_url && item.domain && new URL(run.service_url, location.href).hostname.endsWith(`.${item.domain}`) && !run.finished_at);
  return html`<${Page} title=${name} back=${back} actions=${html`<${Delete} gateway=${item} services=${served.length} />`}>
    ${item.why && html`<${Notice} kind=${item.status === "failed" ? "bad" : "info"}><p><${Words} text=${item.why} /></p><//>`}
    <${Facts} items=${[["Status", html`<${State} gateway=${{ ...item, why: null }} />`], ["Domain", item.domain && html`<code>*.${item.domain}</code>`], ["DNS", html`<${Dns} gateway=${item} />`],
      ["Address", item.hostname && html`<${Copied} text=${item.hostname} />`], ["Where", item.fleet ? html`<a href=${link(project, "fleets", item.fleet)}>${item.fleet}</a>` : `${item.backend} ${item.region ?? ""}`],
      ["Default", item.default ? "for services that name no gateway" : null], ["Created", html`<${Ago} at=${item.created_at} />`]]} />
    <${Record} gateway=${item} />
    <${Section} title="Certificates" flush><${Certificates} gateway=${item} /><//>
    <div class="columns">
      <${Section} title="Services">${served.length === 0 ? html`<${Empty} title="No service has a name here now." />` : html`<ul class="plain">${served.map((run) => html`<li key=${run.id}><a href=${link(project, "services", run.name)}>${run.name}</a> <span class="soft mono">${run.service_url}</span></li>`)}</ul>`}<//>
      <${Section} title="Machines">${detail ? html`<${Replicas} gateway=${detail} />` : html`<${Loading} />`}<//></div>
    <${Section} title="What happened"><${History} project=${project} of=${{ gateway_id: item.id }} changed=${item} /><//>
  <//>`;
}

/** What to enter where the domain is managed, as long as no certificate proves that it is there. @param {{gateway: GatewaySummary}} props */
function Record({ gateway }) {
  const { look } = dnsState(gateway);
  if (!gateway.domain || !gateway.hostname || look === "healthy") return null;
  const kind = /^[0-9.]+$/.test(gateway.hostname) ? "A" : gateway.hostname.includes(":") ? "AAAA" : "CNAME";
  return html`<${Section} title="To do: a DNS record" note="Enter it where your domain is managed. Certificates are requested when a service gets its name, and issued once names lead here."><${Code} label="DNS record" copy text=${`*.${gateway.domain}.  ${kind}  ${gateway.hostname}${kind === "CNAME" ? "." : ""}`} /><//>`;
}

/** @param {{gateway: GatewaySummary}} props */
function Certificates({ gateway }) {
  const now = Date.now();
  /** @type {import("../../kit/table.js").Column[]} */
  const columns = [
    { key: "host", title: "Host", least: 12, value: (each) => each.host, cell: (each) => html`<code>${each.host}</code>` },
    { key: "state", title: "State", width: 13, cell: (each) => { const { look, text } = certificateState(each, now); return html`<${Status} value=${look} text=${text} />`; } },
    { key: "until", title: "Expires", width: 8, wide: 50, cell: (each) => html`<${Ago} at=${each.expires_at} />` },
    { key: "why", title: "Why", least: 12, wide: true, cell: (each) => html`<span title=${each.why ?? ""}>${each.why}${each.next_attempt_at && html` <span class="soft">Tried again <${Ago} at=${each.next_attempt_at} />.</span>`}</span>` },
  ];
  return html`<${Table} label="Certificates" columns=${columns} rows=${gateway.certificates} keyOf=${(/** @type {any} */ each) => each.host}
    empty=${html`<${Empty} title="No certificates yet." next=${gateway.domain ? "One is requested for each service that gets a name here." : "Without a domain, services have no names of their own."} />`} />`;
}

/** @param {{gateway: Gateway}} props */
function Replicas({ gateway }) {
  if (gateway.replicas.length === 0) return html`<${Empty} title="No machines now." />`;
  return html`<ul class="plain">${gateway.replicas.map((each) => html`<li key=${each.num} class="state"><${Status} value=${each.status} /><span>${each.instance}</span><code>${each.hostname}</code><span class="state-why" title=${each.why ?? ""}>${each.why}</span></li>`)}</ul>`;
}

/** @param {{gateway: GatewaySummary, services: number}} props */
function Delete({ gateway, services }) {
  const { can } = useSession(gateway.project);
  if (!can("gateways", gateway.project) || gateway.status === "deleting") return null;
  const remove = async () => {
    const text = services > 0 ? `${counted(services, "service")} can't be reached by their names any more.` : "No service has a name here now.";
    if (!(await confirm({ title: `Delete the gateway ${gateway.name}?`, text, action: "Delete", danger: true, typed: services > 0 ? gateway.name : undefined }))) return;
    try {
      await send("DELETE", pathOf(gateway.project, gateway.name));
      toast(`${gateway.name} is being deleted.`);
      await refresh("gateways", gateway.project);
      go(link(gateway.project, "gateways"));
    } catch (error) {
      toastFailure(error);
    }
  };
  return html`<${Button} icon="trash" onClick=${remove}>Delete<//>`;
}
