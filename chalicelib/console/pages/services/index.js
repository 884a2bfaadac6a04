// Services: the list, and one by itself.
import { link, setQuery } from "../../app/router.js";
import { useCollection } from "../../data/live.js";
import { useSession } from "../../data/session.js";
import { Button } from "../../kit/button.js";
import { Empty, Loading } from "../../kit/empty.js";
import { Money } from "../../kit/money.js";
import { Failed } from "../../kit/notice.js";
import { Page } from "../../kit/page.js";
import { html } from "../../kit/preact.js";
import { Status } from "../../kit/status.js";
import { Table } from "../../kit/table.js";
import { Ago } from "../../kit/time.js";
import { hasEnded } from "../../lib/run_facts.js";
import { addressOf } from "../../lib/services.js";
import { sortOf, sortText } from "../../lib/sorting.js";
import { OneService } from "./service.js";

/** @typedef {import("../../types").RunSummary} RunSummary */

export const BASE = document.baseURI.split("#")[0] ?? "";

/** @param {import("../../types").PageProps} props */
export default function Services({ project, parts, query }) {
  if (parts[0]) return html`<${OneService} project=${/** @type {string} */ (project)} name=${parts[0]} query=${query} />`;
  return html`<${List} project=${/** @type {string} */ (project)} query=${query} />`;
}

/** @type {import("../../kit/table.js").Column[]} */
const COLUMNS = [
  { key: "name", title: "Name", value: (run) => run.name, cell: (run) => html`<a href=${link(run.project, "services", run.name)}>${run.name}</a>` },
  { key: "status", title: "Status", width: 10, value: (run) => run.status, cell: (run) => html`<${Status} value=${run.status} title=${run.why} />` },
  { key: "replicas", title: "Replicas", width: 6, align: "right", value: (run) => run.replicas?.ready, cell: (run) => html`<span class="number" title="Replicas that are ready, of those wanted">${run.replicas?.ready}/${run.replicas?.wanted}</span>` },
  { key: "url", title: "Address", wide: true, cell: (run) => html`<a class="mono" href=${addressOf(run.service_url, BASE)} rel="noopener noreferrer" target="_blank">${addressOf(run.service_url, BASE)}</a>` },
  { key: "why", title: "Why", wide: true, value: (run) => run.why ?? "" },
  { key: "user", title: "User", width: 7, wide: true, value: (run) => run.user },
  { key: "submitted", title: "Since", width: 7, wide: true, value: (run) => Date.parse(run.submitted_at), cell: (run) => html`<${Ago} at=${run.submitted_at} />` },
  { key: "price", title: "Price", width: 6, align: "right", value: (run) => run.price_per_hour_usd, cell: (run) => html`<${Money} usd=${run.price_per_hour_usd} hourly />` },
];

/** @param {{project: string, query: Record<string, string>}} props */
function List({ project, query }) {
  const { items, loading, error } = useCollection("runs", project);
  const { can } = useSession(project);
  const services = items.filter((/** @type {RunSummary} */ run) => run.service_url !== null && !hasEnded(run));
  const launch = can("run", project) && html`<${Button} kind="primary" icon="launch" href=${link(project, "launch", { template: "service" })}>Launch a service</${Button}>`;
  return html`<${Page} title="Services" actions=${launch}><${Failed} error=${error} />
    ${loading ? html`<${Loading} />` : !error && html`<${Table} label="Services" tall columns=${COLUMNS} rows=${services} keyOf=${(/** @type {RunSummary} */ run) => run.id}
      sort=${sortOf(query.sort, { key: "name", down: false })} onSort=${(/** @type {any} */ sort) => setQuery({ sort: sortText(sort) })}
      empty=${html`<${Empty} title="No service is up." next=${html`A service is a command that listens on a port, with one address for all of its replicas.
        ${can("run", project) && html` <a href=${link(project, "launch", { template: "service" })}>Write one</a>.`}`} />`} />`}
  </${Page}>`;
}
