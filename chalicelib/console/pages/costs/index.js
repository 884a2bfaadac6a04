// What machines and volumes cost over time, who had them, and what nobody had.
import { link, setQuery } from "../../app/router.js";
import { call, get } from "../../data/api.js";
import { usePolling } from "../../data/live.js";
import { useSession } from "../../data/session.js";
import { Button } from "../../kit/button.js";
import { Empty, Loading } from "../../kit/empty.js";
import { SelectField } from "../../kit/fields.js";
import { Money } from "../../kit/money.js";
import { Failed } from "../../kit/notice.js";
import { Page } from "../../kit/page.js";
import { html, useState } from "../../kit/preact.js";
import { Table } from "../../kit/table.js";
import { toastFailure } from "../../kit/toast.js";
import { idleShare, titleOf } from "../../lib/costs.js";
import { money } from "../../lib/money.js";
import { Bars } from "./bars.js";

/** @typedef {import("../../types").Costs} Costs */

const DAY = 86_400_000, EVERY = 60; // seconds
const RANGES = /** @type {[string, string][]} */ ([["1", "Today, by the hour"], ["7", "Last 7 days"], ["30", "Last 30 days"], ["90", "Last 90 days"], ["365", "Last 365 days"]]);
const NAMES = { user: "User", project: "Project", fleet: "Fleet", gpu: "GPU" };

/** @param {import("../../types").PageProps} props */
export default function CostsPage({ project, query }) {
  const session = useSession(project);
  const groups = /** @type {Costs["by"][]} */ (project === null ? ["project", "user", "fleet", "gpu"] : ["user", "fleet", "gpu"]);
  const by = groups.find((each) => each === query.by) ?? groups[0], days = RANGES.some(([key]) => key === query.days) ? query.days : "30";
  const { costs, error, reload, now } = useCosts(project, by, Number(days));
  const everything = session.can("server") && project !== null && html`<a href=${link(null, "all-costs")}>All projects</a>`;
  return html`<${Page} title=${project === null ? "Costs of all projects" : "Costs"} name="Costs" actions=${costs && html`${everything}<${Button} small icon="download" onClick=${() => download(project, by, Number(days))}>CSV<//>`}>
    <form class="cost-filters" aria-label="What to show" onSubmit=${(/** @type {any} */ event) => event.preventDefault()}>
      <${SelectField} label="By" value=${by} options=${groups.map((each) => [each, NAMES[each]])} onInput=${(/** @type {string} */ value) => setQuery({ by: value })} />
      <${SelectField} label="Time (UTC)" value=${days} options=${RANGES} onInput=${(/** @type {string} */ value) => setQuery({ days: value })} />
    </form>
    <${Failed} error=${error} retry=${reload} />
    ${costs && costs.unpriced_volumes > 0 && html`<p class="note">Without ${costs.unpriced_volumes === 1 ? "a volume" : `${costs.unpriced_volumes} volumes`} whose price isn’t known.</p>`}
    ${!costs ? !error && html`<${Loading} />` : html`<${Numbers} costs=${costs} />
      ${costs.items.length === 0 ? html`<${Empty} title="No machine was had in this time." next="Choose a longer time, or submit a run: its cost is here within a minute." />`
        : html`${costs.usd > 0 && html`<${Bars} costs=${costs} now=${now} />`}<${Rows} costs=${costs} project=${project} />`}`}
  <//>`;
}

/** The same for all projects, for who may see that. @param {import("../../types").PageProps} props */
export const AllCosts = (props) => html`<${CostsPage} ...${props} project=${null} />`;

/** @param {string | null} project @param {Costs["by"]} by @param {number} days */
function asked(project, by, days) {
  const today = Math.floor(Date.now() / DAY) * DAY;
  const since = new Date(today - (days - 1) * DAY).toISOString();
  return { path: project === null ? "/costs" : `/projects/${encodeURIComponent(project)}/costs`, query: { by, since, step: days === 1 ? "hour" : "day" } };
}

/** @param {string | null} project @param {Costs["by"]} by @param {number} days */
function useCosts(project, by, days) {
  const [state, setState] = useState(/** @type {{key: string, costs: Costs | null, error: any, now: number}} */ ({ key: "", costs: null, error: null, now: 0 }));
  const key = [project, by, days].join("/");
  const reload = async () => {
    const { path, query } = asked(project, by, days);
    try {
      const costs = /** @type {Costs} */ (await get(path, query));
      setState({ key, costs, error: null, now: Date.now() });
    } catch (error) {
      setState((was) => ({ ...was, key, costs: was.key === key ? was.costs : null, error }));
    }
  };
  usePolling(reload, EVERY, [key]);
  return { ...state, costs: state.key === key ? state.costs : null, error: state.key === key ? state.error : null, reload };
}

/** @param {number} value */
const hours = (value) => value.toLocaleString("en", { minimumFractionDigits: 1, maximumFractionDigits: 1 });

/** @param {{costs: Costs}} props */
function Numbers({ costs }) {
  const { month, budget_usd_per_day: budget } = costs;
  const name = new Date(month.since).toLocaleDateString("en", { month: "long", timeZone: "UTC" });
  const tiles = [
    { title: "In this time", value: money(costs.usd), note: `${hours(costs.gpu_hours)} GPU hours` },
    { title: "Idle", value: idleShare(costs), note: `${money(costs.idle_usd)} for what no job had` },
    { title: `${name} so far`, value: money(month.usd), note: "in UTC" },
    { title: `${name} at its end`, value: `≈ ${money(month.forecast_usd)}`, note: "if the rest is like the last 7 days" },
    ...(budget === null ? [] : [{ title: "Quota", value: `${money(budget)} a day`, note: "of the project" }]),
  ];
  return html`<dl class="tiles">${tiles.map(({ title, value, note }) => html`<div key=${title} class="tile"><dt>${title}</dt><dd><span class="number">${value}</span><span class="tile-note">${note}</span></dd></div>`)}</dl>`;
}

/** @param {{costs: Costs, project: string | null}} props */
function Rows({ costs, project }) {
  const [sort, setSort] = useState({ key: "usd", down: true });
  const shown = (/** @type {import("../../types").CostSeries} */ { name }) => {
    if (costs.by === "project" && name) return html`<a href=${link(name, "costs")}>${name}</a>`;
    if (costs.by === "fleet" && name && project !== null && /^[a-z0-9-]+$/.test(name)) return html`<a href=${link(project, "fleets", name)}>${name}</a>`;
    return html`<span class=${name === null ? "soft" : ""}>${titleOf(name, costs.by)}</span>`;
  };
  const columns = [
    { key: "name", title: NAMES[costs.by], value: (/** @type {any} */ row) => titleOf(row.name, costs.by), cell: shown },
    { key: "usd", title: "Cost", align: /** @type {const} */ ("right"), width: 8, value: (/** @type {any} */ row) => row.usd, cell: (/** @type {any} */ row) => html`<${Money} usd=${row.usd} />` },
    { key: "share", title: "Of all", align: /** @type {const} */ ("right"), width: 6, wide: true, value: (/** @type {any} */ row) => row.usd, cell: (/** @type {any} */ row) => html`<span class="number">${costs.usd > 0 ? `${Math.round((100 * row.usd) / costs.usd)} %` : "–"}</span>` },
    { key: "idle", title: "Idle", align: /** @type {const} */ ("right"), width: 8, wide: true, value: (/** @type {any} */ row) => row.idle_usd, cell: (/** @type {any} */ row) => html`<${Money} usd=${row.idle_usd} />` },
    { key: "idle-share", title: "Idle share", align: /** @type {const} */ ("right"), width: 7, value: (/** @type {any} */ row) => (row.usd > 0 ? row.idle_usd / row.usd : 0), cell: (/** @type {any} */ row) => html`<span class="number">${idleShare(row)}</span>` },
    { key: "gpu", title: "GPU hours", align: /** @type {const} */ ("right"), width: 8, wide: true, value: (/** @type {any} */ row) => row.gpu_hours, cell: (/** @type {any} */ row) => html`<span class="number">${hours(row.gpu_hours)}</span>` },
  ];
  return html`<${Table} label=${`Costs by ${NAMES[costs.by].toLowerCase()}`} columns=${columns} rows=${costs.items} keyOf=${(/** @type {any} */ row) => row.name ?? "—"} sort=${sort} onSort=${setSort} />`;
}

/** @param {string | null} project @param {Costs["by"]} by @param {number} days */
async function download(project, by, days) {
  const { path, query } = asked(project, by, days);
  try {
    const response = await call("GET", `v1${path}.csv`, { query });
    const url = URL.createObjectURL(await response.blob());
    Object.assign(document.createElement("a"), { href: url, download: `costs-${project ?? "all"}-by-${by}.csv` }).click();
    setTimeout(() => URL.revokeObjectURL(url), 10_000);
  } catch (error) {
    toastFailure(error);
  }
}

