import { link, setQuery } from "../../app/router.js";
import { useCollection } from "../../data/live.js";
import { Empty, Loading } from "../../kit/empty.js";
import { Money } from "../../kit/money.js";
import { Failed } from "../../kit/notice.js";
import { Page } from "../../kit/page.js";
import { html } from "../../kit/preact.js";
import { Status } from "../../kit/status.js";
import { Table } from "../../kit/table.js";
import { Ago } from "../../kit/time.js";
import { sortOf, sortText } from "../../lib/sorting.js";

/** @typedef {import("../../types").RunSummary} RunSummary */

const COLUMNS = [
  { key: "name", title: "Name", value: (/** @type {RunSummary} */ run) => run.name, cell: (/** @type {RunSummary} */ run) => html`<a href=${link(run.project, "runs", run.name)}>${run.name}</a>` },
  { key: "status", title: "Status", width: 11, value: (/** @type {RunSummary} */ run) => run.status, cell: (/** @type {RunSummary} */ run) => html`<${Status} value=${run.status} />` },
  { key: "user", title: "User", width: 8, wide: true, value: (/** @type {RunSummary} */ run) => run.user },
  { key: "submitted", title: "Submitted", width: 8, value: (/** @type {RunSummary} */ run) => Date.parse(run.submitted_at), cell: (/** @type {RunSummary} */ run) => html`<${Ago} at=${run.submitted_at} />` },
  { key: "cost", title: "Cost", width: 6, align: "right", value: (/** @type {RunSummary} */ run) => run.cost_usd, cell: (/** @type {RunSummary} */ run) => html`<${Money} usd=${run.cost_usd} />` },
];

/** @param {import("../../types").PageProps} props */
export default function Runs({ project, query }) {
  const { items, loading, error } = useCollection("runs", project);
  if (loading) return html`<${Page} title="Runs"><${Loading} /></${Page}>`;
  return html`<${Page} title="Runs"><${Failed} error=${error} />
    <${Table} label="Runs" tall columns=${COLUMNS} rows=${items} keyOf=${(/** @type {RunSummary} */ run) => run.id}
      sort=${sortOf(query.sort, { key: "submitted", down: true })} onSort=${(/** @type {any} */ sort) => setQuery({ sort: sortText(sort) })}
      empty=${html`<${Empty} title="No runs yet." next="Submit one: dstack apply -f task.dstack.yml" />`} />
  </${Page}>`;
}
