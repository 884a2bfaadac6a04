// Volumes: disks that outlive runs, what they cost, and who has them.
import { link, setQuery } from "../../app/router.js";
import { send } from "../../data/api.js";
import { refresh, useCollection } from "../../data/live.js";
import { useSession } from "../../data/session.js";
import { Button } from "../../kit/button.js";
import { confirm } from "../../kit/dialog.js";
import { Empty, Loading } from "../../kit/empty.js";
import { Money } from "../../kit/money.js";
import { Failed } from "../../kit/notice.js";
import { Page } from "../../kit/page.js";
import { html, useMemo } from "../../kit/preact.js";
import { Status } from "../../kit/status.js";
import { Table } from "../../kit/table.js";
import { Ago } from "../../kit/time.js";
import { toast, toastFailure } from "../../kit/toast.js";
import { money } from "../../lib/money.js";
import { sortOf, sortText } from "../../lib/sorting.js";

/** @typedef {import("../../types").Volume} Volume */

/** @param {import("../../types").PageProps} props */
export default function Volumes({ project, query }) {
  const { items, loading, error } = useCollection("volumes", project);
  const { can } = useSession(project);
  const may = can("fleets", project);
  const columns = useMemo(() => (may ? [...COLUMNS, DELETE] : COLUMNS), [may]);
  return html`<${Page} title="Volumes"><${Failed} error=${error} />
    ${loading && items.length === 0 ? html`<${Loading} />` : !error && html`<${Table} label="Volumes" tall columns=${columns} rows=${items} keyOf=${(/** @type {Volume} */ volume) => volume.id}
      sort=${sortOf(query.sort, { key: "name", down: false })} onSort=${(/** @type {any} */ sort) => setQuery({ sort: sortText(sort) })}
      empty=${html`<${Empty} title="No volumes yet." next=${html`A volume is a disk that stays when a run ends. Write one in a file, and <code>dstack apply -f volume.dstack.yml</code>.`} />`} />`}
  <//>`;
}

/** @type {import("../../kit/table.js").Column[]} */
const COLUMNS = [
  { key: "name", title: "Name", least: 6, value: (volume) => volume.name, cell: (volume) => html`<span title=${volume.disk_id ?? undefined}>${volume.name}</span>` },
  { key: "status", title: "Status", least: 8, value: (volume) => volume.status, cell: (volume) => html`<span class="state"><${Status} value=${volume.status === "deleting" ? "terminating" : volume.status} text=${volume.status} /><span class="state-why" title=${volume.why ?? ""}>${volume.why}</span></span>` },
  { key: "attached", title: "Attached to", least: 11, wide: 40, value: (volume) => volume.attachments.length, cell: (volume) => html`<${Attached} volume=${volume} />` },
  { key: "size", title: "Size", width: 5, align: "right", value: (volume) => volume.size_gb, cell: (volume) => (volume.size_gb === null ? html`<span class="soft">–</span>` : html`<span class="number">${volume.size_gb} GB</span>`) },
  { key: "place", title: "Where", width: 9.5, wide: 60, value: (volume) => `${volume.backend} ${volume.region}`, cell: (volume) => `${volume.backend} ${volume.zone ?? volume.region}` },
  { key: "user", title: "User", width: 7, wide: 100, value: (volume) => volume.user },
  { key: "created", title: "Created", width: 7, wide: 60, align: "right", value: (volume) => Date.parse(volume.created_at), cell: (volume) => html`<${Ago} at=${volume.created_at} />` },
  { key: "month", title: "$/month", width: 6.5, align: "right", wide: true, value: (volume) => volume.price_per_month_usd, cell: (volume) => html`<${Money} usd=${volume.price_per_month_usd} />` },
  { key: "cost", title: "Cost", width: 6, align: "right", wide: 60, value: (volume) => volume.cost_usd, cell: (volume) => html`<${Money} usd=${volume.cost_usd} />` },
];

/** @type {import("../../kit/table.js").Column} */
const DELETE = { key: "delete", title: html`<span class="unseen">Delete</span>`, width: 3.5, plain: true, cell: (volume) => volume.status !== "deleting" && html`<${Button} icon="trash" small kind="plain" label=${`Delete ${volume.name}`} onClick=${() => remove(volume)} />` };

/** @param {{volume: Volume}} props */
function Attached({ volume }) {
  if (volume.attachments.length === 0) return html`<span class="soft">nothing</span>`;
  return html`${volume.attachments.map(({ run, instance, instance_id: id }, at) => html`<span key=${id}>${at > 0 ? ", " : ""}<a href=${link(volume.project, "runs", run)}>${run}</a> <span class="soft">on ${instance}</span></span>`)}`;
}

/** @param {Volume} volume */
async function remove(volume) {
  const saves = volume.price_per_month_usd ? ` That saves ${money(volume.price_per_month_usd)} a month.` : "";
  const text = volume.external ? "The disk was there before, and stays at its provider with all that is on it." : `All that is on it is lost.${saves}`;
  if (!(await confirm({ title: `Delete the volume ${volume.name}?`, text, action: "Delete", danger: true, typed: volume.external ? undefined : volume.name }))) return;
  try {
    await send("DELETE", `/projects/${encodeURIComponent(volume.project)}/volumes/${encodeURIComponent(volume.name)}`);
    toast(`${volume.name} is being deleted.`);
    await refresh("volumes", volume.project);
  } catch (error) {
    toastFailure(error);
  }
}
