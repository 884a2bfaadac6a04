import { link } from "../../app/router.js";
import { Money } from "../../kit/money.js";
import { html } from "../../kit/preact.js";
import { Status } from "../../kit/status.js";
import { Words } from "../../kit/words.js";
import { Ago } from "../../kit/time.js";
import { gpuText, hasEnded, placeText, shortWhy, waits, whyText } from "../../lib/run_facts.js";

/** @typedef {import("../../types").RunSummary} RunSummary */

/** @type {import("../../kit/table.js").Column[]} */
export const COLUMNS = [
  { key: "name", title: "Name", width: 10, value: (run) => run.name, cell: (run) => html`<a href=${link(run.project, "runs", run.name)} title=${run.name}>${run.name}</a>` },
  { key: "status", title: "Status", least: 11, value: (run) => run.status, cell: (run) => html`<${State} run=${run} />` },
  { key: "type", title: "Kind", width: 7, wide: 100, value: (run) => run.type, cell: (run) => run.type.replace("-", " ") },
  { key: "user", title: "User", width: 6, wide: 60, value: (run) => run.user },
  { key: "gpu", title: "GPU", width: 7, wide: true, value: gpuText, cell: (run) => html`<span class=${run.gpus.length > 0 ? "" : "soft"}>${gpuText(run) || "–"}</span>` },
  { key: "place", title: "Where", width: 9.5, wide: 90, value: placeText, cell: (run) => html`<span title=${run.places.map((/** @type {any} */ place) => place.type).join(", ")}>${placeText(run) || html`<span class="soft">–</span>`}</span>` },
  { key: "submitted", title: "Submitted", width: 7, wide: 60, align: "right", value: (run) => Date.parse(run.submitted_at), cell: (run) => html`<${Ago} at=${run.submitted_at} />` },
  { key: "cost", title: "Cost", width: 5, wide: true, align: "right", value: (run) => run.cost_usd, cell: (run) => html`<${Money} usd=${run.cost_usd} />` },
  { key: "price", title: "$/h", width: 5.5, align: "right", wide: true, value: (run) => run.price_per_hour_usd, cell: (run) => html`<${Money} usd=${hasEnded(run) || waits(run) ? null : run.price_per_hour_usd} hourly />` },
];

/** Its status, and the reason beside it: nobody should have to open a run to see why it failed.
 * @param {{run: RunSummary}} props */
export function State({ run }) {
  const why = whyText(run);
  const { replicas } = run;
  return html`<span class="state"><${Status} value=${run.status} text=${waits(run) ? "waiting" : undefined} />
    ${replicas && !hasEnded(run) && html`<span class="soft number" title="Replicas that are ready, of those wanted">${replicas.ready}/${replicas.wanted}</span>`}
    ${why && html`<span class="state-why" title=${why}><${Words} text=${shortWhy(why)} /></span>`}</span>`;
}
