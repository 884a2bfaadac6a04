// Gateways: the doors of services with names of their own; whether names lead there, and how long certificates last.
import { link, setQuery } from "../../app/router.js";
import { useCollection } from "../../data/live.js";
import { Empty, Loading } from "../../kit/empty.js";
import { Failed } from "../../kit/notice.js";
import { Page } from "../../kit/page.js";
import { html } from "../../kit/preact.js";
import { Status } from "../../kit/status.js";
import { Table } from "../../kit/table.js";
import { Ago } from "../../kit/time.js";
import { dnsState, worstCertificate } from "../../lib/machines.js";
import { sortOf, sortText } from "../../lib/sorting.js";
import { OneGateway } from "./gateway.js";

/** @typedef {import("../../types").GatewaySummary} GatewaySummary */

/** @param {import("../../types").PageProps} props */
export default function Gateways({ project, parts, query }) {
  const of = /** @type {string} */ (project);
  return parts[0] ? html`<${OneGateway} key=${`${of}/${parts[0]}`} project=${of} name=${parts[0]} />` : html`<${List} project=${of} query=${query} />`;
}

/** @param {{gateway: GatewaySummary}} props */
export function State({ gateway }) {
  const value = gateway.status === "deleting" ? "terminating" : gateway.status;
  return html`<span class="state"><${Status} value=${value} text=${gateway.status} /><span class="state-why" title=${gateway.why ?? ""}>${gateway.why}</span></span>`;
}

/** @param {{gateway: GatewaySummary}} props */
export function Dns({ gateway }) {
  const { look, text } = dnsState(gateway);
  return html`<${Status} value=${look} text=${text} />`;
}

/** @param {{gateway: GatewaySummary}} props */
function Certificates({ gateway }) {
  const worst = worstCertificate(gateway, Date.now());
  if (!worst) return html`<span class="soft">none</span>`;
  return html`<${Status} value=${worst.look} text=${worst.text} title=${gateway.certificates.map((each) => each.host).join(", ")} />`;
}

/** @type {import("../../kit/table.js").Column[]} */
const COLUMNS = [
  { key: "name", title: "Name", least: 8, value: (gateway) => gateway.name, cell: (gateway) => html`<a href=${link(gateway.project, "gateways", gateway.name)}>${gateway.name}</a>${gateway.default && html` <span class="soft">default</span>`}` },
  { key: "status", title: "Status", least: 10, value: (gateway) => gateway.status, cell: (gateway) => html`<${State} gateway=${gateway} />` },
  { key: "domain", title: "Domain", least: 10, wide: 40, value: (gateway) => gateway.domain, cell: (gateway) => (gateway.domain ? html`<code>*.${gateway.domain}</code>` : html`<span class="soft">none</span>`) },
  { key: "dns", title: "DNS", width: 9, wide: 60, value: (gateway) => dnsState(gateway).text, cell: (gateway) => html`<${Dns} gateway=${gateway} />` },
  { key: "certificates", title: "Certificates", width: 9, wide: 50, value: (gateway) => worstCertificate(gateway, Date.now())?.text, cell: (gateway) => html`<${Certificates} gateway=${gateway} />` },
  { key: "address", title: "Address", width: 10, wide: 80, value: (gateway) => gateway.hostname, cell: (gateway) => (gateway.hostname ? html`<code>${gateway.hostname}</code>` : html`<span class="soft">–</span>`) },
  { key: "place", title: "Where", width: 10, wide: 90, value: (gateway) => gateway.backend ?? gateway.fleet, cell: (gateway) => (gateway.fleet ? html`<a href=${link(gateway.project, "fleets", gateway.fleet)}>${gateway.fleet}</a>` : `${gateway.backend} ${gateway.region ?? ""}`) },
  { key: "created", title: "Created", width: 7, wide: 60, align: "right", value: (gateway) => Date.parse(gateway.created_at), cell: (gateway) => html`<${Ago} at=${gateway.created_at} />` },
];

/** @param {{project: string, query: Record<string, string>}} props */
function List({ project, query }) {
  const { items, loading, error } = useCollection("gateways", project);
  return html`<${Page} title="Gateways"><${Failed} error=${error} />
    ${loading && items.length === 0 ? html`<${Loading} />` : !error && html`<${Table} label="Gateways" tall columns=${COLUMNS} rows=${items} keyOf=${(/** @type {GatewaySummary} */ gateway) => gateway.id}
      sort=${sortOf(query.sort, { key: "name", down: false })} onSort=${(/** @type {any} */ sort) => setQuery({ sort: sortText(sort) })}
      empty=${html`<${Empty} title="No gateways yet." next=${html`A gateway gives services names below a domain of yours, with certificates. Without one they are reached through the server. Write one in a file, and <code>dstack apply -f gateway.dstack.yml</code>.`} />`} />`}
  <//>`;
}
