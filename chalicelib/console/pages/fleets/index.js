// Fleets and their machines: the lists, a fleet, and a machine.
import { link, setQuery } from "../../app/router.js";
import { useCollection } from "../../data/live.js";
import { Empty, Loading } from "../../kit/empty.js";
import { Meter } from "../../kit/meter.js";
import { Money } from "../../kit/money.js";
import { Failed } from "../../kit/notice.js";
import { Page } from "../../kit/page.js";
import { html, useMemo } from "../../kit/preact.js";
import { Status } from "../../kit/status.js";
import { Table } from "../../kit/table.js";
import { Tabs } from "../../kit/tabs.js";
import { Ago } from "../../kit/time.js";
import { gpusText, stateOf, troubleOf } from "../../lib/machines.js";
import { sortOf, sortText } from "../../lib/sorting.js";
import { Blocks } from "./blocks.js";
import { OneFleet } from "./fleet.js";
import { OneInstance } from "./instance.js";

/** @typedef {import("../../types").Instance} Instance */
/** @typedef {import("../../types").FleetSummary} FleetSummary */
/** @typedef {import("../../types").RunSummary} RunSummary */

/** @param {import("../../types").PageProps} props */
export default function Fleets({ project, parts, query }) {
  const [name, num] = parts;
  const of = /** @type {string} */ (project);
  if (name && num) return html`<${OneInstance} key=${`${of}/${name}/${num}`} project=${of} fleet=${name} num=${Number(num)} />`;
  if (name) return html`<${OneFleet} key=${`${of}/${name}`} project=${of} name=${name} query=${query} />`;
  return html`<${Lists} project=${of} query=${query} />`;
}

/** @type {import("../../kit/table.js").Column[]} */
const FLEETS = [
  { key: "name", title: "Name", least: 7, value: (fleet) => fleet.name, cell: (fleet) => html`<a href=${link(fleet.project, "fleets", fleet.name)}>${fleet.name}</a>` },
  { key: "status", title: "Status", least: 8, value: (fleet) => fleet.status, cell: (fleet) => html`<span class="state"><${Status} value=${fleet.status} />${fleet.why && html`<span class="state-why" title=${fleet.why}>${fleet.why}</span>`}</span>` },
  { key: "machines", title: "Machines", width: 6, wide: 40, align: "right", value: (fleet) => fleet.instance_count, cell: (fleet) => html`<span class="number">${fleet.instance_count}</span>` },
  { key: "gpus", title: "GPUs busy", width: 13, wide: true, value: (fleet) => fleet.busy_gpus, cell: (fleet) => html`<${Busy} fleet=${fleet} />` },
  { key: "created", title: "Created", width: 8, wide: 60, align: "right", value: (fleet) => Date.parse(fleet.created_at), cell: (fleet) => html`<${Ago} at=${fleet.created_at} />` },
  { key: "price", title: "$/h", width: 6, align: "right", value: (fleet) => fleet.price_per_hour_usd, cell: (fleet) => html`<${Money} usd=${fleet.price_per_hour_usd} hourly />` },
];

/** @param {{fleet: FleetSummary}} props */
export function Busy({ fleet }) {
  if (fleet.gpus === 0) return html`<span class="soft">none</span>`;
  return html`<${Meter} value=${fleet.busy_gpus} of=${fleet.gpus} label=${`GPUs of ${fleet.name} that are busy`} text=${`${Math.round(fleet.busy_gpus * 10) / 10}/${fleet.gpus}`} />`;
}

/** @param {Map<string, RunSummary>} runs @returns {import("../../kit/table.js").Column[]} */
export const instanceColumns = (runs) => [
  { key: "name", title: "Machine", least: 8, value: (each) => each.name, cell: (each) => html`<a href=${link(each.project, "fleets", each.fleet, each.num)}>${each.name}</a>` },
  { key: "status", title: "Status", least: 11, value: (each) => stateOf(each).text ?? stateOf(each).value, cell: (each) => html`<span class="state"><${Status} ...${stateOf(each)} /><span class="state-why" title=${troubleOf(each)}>${troubleOf(each)}</span></span>` },
  { key: "use", title: "In use by", least: 11, wide: 40, value: (each) => each.busy_blocks / each.blocks, cell: (each) => html`<${Blocks} instance=${each} runs=${runs} />` },
  { key: "gpus", title: "GPUs", width: 10, wide: true, value: (each) => gpusText(each.resources.gpus), cell: (each) => html`<span class=${each.resources.gpus.length ? "" : "soft"}>${gpusText(each.resources.gpus) || "none"}</span>` },
  { key: "place", title: "Where", width: 10, wide: 80, value: (each) => `${each.backend} ${each.region}`, cell: (each) => html`<span title=${each.type}>${each.backend === "remote" ? (each.hostname ?? "your own") : `${each.backend} ${each.zone ?? each.region}`}</span>` },
  { key: "since", title: "Created", width: 7, wide: 60, align: "right", value: (each) => Date.parse(each.created_at), cell: (each) => html`<${Ago} at=${each.created_at} />` },
  { key: "price", title: "$/h", width: 6, align: "right", wide: true, value: (each) => each.price_per_hour_usd, cell: (each) => html`<${Money} usd=${each.price_per_hour_usd} hourly />` },
];

/** @param {{project: string, query: Record<string, string>}} props */
function Lists({ project, query }) {
  const fleets = useCollection("fleets", project), machines = useCollection("instances", project);
  const current = query.tab === "machines" ? "machines" : "fleets";
  const tabs = [
    { key: "fleets", title: "Fleets", href: link(project, "fleets"), count: fleets.items.length },
    { key: "machines", title: "Machines", href: link(project, "fleets", { tab: "machines" }), count: machines.items.length },
  ];
  return html`<${Page} title="Fleets"><${Failed} error=${fleets.error} />
    <${Tabs} label="Fleets and their machines" tabs=${tabs} current=${current} />
    ${fleets.loading && fleets.items.length === 0 ? html`<${Loading} />` : fleets.error ? null : current === "fleets" ? html`<${FleetTable} fleets=${fleets.items} query=${query} />` : html`<${Machines} project=${project} items=${machines.items} query=${query} tall />`}
  <//>`;
}

/** @param {{fleets: FleetSummary[], query: Record<string, string>}} props */
function FleetTable({ fleets, query }) {
  return html`<${Table} label="Fleets" tall columns=${FLEETS} rows=${fleets} keyOf=${(/** @type {FleetSummary} */ fleet) => fleet.id}
    sort=${sortOf(query.sort, { key: "name", down: false })} onSort=${(/** @type {any} */ sort) => setQuery({ sort: sortText(sort) })}
    empty=${html`<${Empty} title="No fleets yet." next=${html`A fleet says which machines runs may use: those of a cloud, or your own over SSH. Write one in a file, and <code>dstack apply -f fleet.dstack.yml</code>.`} />`} />`;
}

/** @param {{project: string, items: Instance[], query: Record<string, string>, tall?: boolean, empty?: string}} props */
export function Machines({ project, items, query, tall, empty = "No machines now. They come when a run needs one, or when a fleet asks for some." }) {
  const runs = useCollection("runs", project).items;
  const columns = useMemo(() => instanceColumns(new Map(runs.map((run) => [run.id, run]))), [runs]);
  return html`<${Table} label="Machines" tall=${tall} columns=${columns} rows=${items} keyOf=${(/** @type {Instance} */ each) => each.id}
    sort=${sortOf(query.sort, { key: "name", down: false })} onSort=${(/** @type {any} */ sort) => setQuery({ sort: sortText(sort) })}
    empty=${html`<${Empty} title=${empty} />`} />`;
}
