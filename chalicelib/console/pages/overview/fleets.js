import { PAGES } from "../../app/pages.js";
import { link } from "../../app/router.js";
import { Empty } from "../../kit/empty.js";
import { Meter } from "../../kit/meter.js";
import { Money } from "../../kit/money.js";
import { Section } from "../../kit/page.js";
import { html } from "../../kit/preact.js";
import { counted } from "../../lib/money.js";

/** @typedef {import("../../types").FleetSummary} FleetSummary */

/** The GPUs of each fleet, and how many of them work. @param {{fleets: FleetSummary[], project: string | null}} props */
export function Fleets({ fleets, project }) {
  const shown = fleets.filter((fleet) => fleet.status !== "terminated").sort((one, two) => two.gpus - one.gpus || two.price_per_hour_usd - one.price_per_hour_usd);
  const linked = PAGES.some((page) => page.name === "fleets");
  return html`<${Section} title="GPUs by fleet" flush actions=${linked && html`<a href=${link(project, "fleets")}>All fleets</a>`}>
    ${shown.length === 0 ? html`<${Empty} title="No fleets yet." next=${html`A fleet says which machines may be used: <code>dstack apply -f fleet.dstack.yml</code>`} />`
      : html`<ul class="fleet-list">${shown.map((fleet) => html`<li key=${fleet.id}>
        ${linked ? html`<a href=${link(fleet.project, "fleets", fleet.name)}>${fleet.name}</a>` : html`<b>${fleet.name}</b>`}
        ${fleet.gpus > 0 ? html`<${Meter} value=${fleet.busy_gpus} of=${fleet.gpus} label=${`GPUs of ${fleet.name} that are busy`} text=${`${rounded(fleet.busy_gpus)}/${fleet.gpus}`} />` : html`<span class="soft">${counted(fleet.instance_count, "machine")}, no GPUs</span>`}
        <${Idle} fleet=${fleet} /><${Money} usd=${fleet.price_per_hour_usd} hourly /></li>`)}</ul>`}
  <//>`;
}

/** What its idle GPUs cost: the part of its price that nobody uses. @param {{fleet: FleetSummary}} props */
function Idle({ fleet }) {
  const idle = fleet.gpus > 0 ? (fleet.price_per_hour_usd * (fleet.gpus - fleet.busy_gpus)) / fleet.gpus : 0;
  return html`<span class="soft small-text">${idle > 0 && html`<${Money} usd=${idle} hourly /> idle`}</span>`;
}

/** @param {number} value */
const rounded = (value) => (Number.isInteger(value) ? value : value.toFixed(1));
