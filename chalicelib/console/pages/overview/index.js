// What somebody wants to know first: what needs them, what is busy, what it costs, what has just changed.
import { link } from "../../app/router.js";
import { useCollection } from "../../data/live.js";
import { useSession } from "../../data/session.js";
import { Empty, Loading } from "../../kit/empty.js";
import { Failed } from "../../kit/notice.js";
import { Page, Section } from "../../kit/page.js";
import { html, useMemo } from "../../kit/preact.js";
import { counted, rate } from "../../lib/money.js";
import { attention, summary } from "../../lib/overview.js";
import { useStore } from "../../kit/use_store.js";
import { clock } from "../../kit/time.js";
import { Attention } from "./attention.js";
import { Fleets } from "./fleets.js";
import { Latest } from "./latest.js";

const MINUTE = 60_000;

/** @param {import("../../types").PageProps} props */
export default function Overview({ project }) {
  const runs = useCollection("runs", project), fleets = useCollection("fleets", project), instances = useCollection("instances", project);
  const { user } = useSession(project);
  const minute = Math.floor(useStore(clock) / MINUTE) * MINUTE; // what is old changes as slowly as that
  const items = useMemo(() => attention(runs.items, instances.items, fleets.items, { me: user.name, now: minute }), [runs.items, instances.items, fleets.items, user.name, minute]);
  const numbers = useMemo(() => summary(runs.items, fleets.items, minute), [runs.items, fleets.items, minute]);
  const error = runs.error ?? fleets.error; // with nothing known: zeros would look like facts
  const loading = runs.loading || fleets.loading;
  return html`<${Page} title="Overview">
    <${Failed} error=${error} />
    ${error ? null : loading && runs.items.length === 0 ? html`<${Loading} />` : html`
      <${Numbers} project=${project} ...${numbers} />
      <div class="columns">
        <${Section} title="Needs attention" flush>
          ${items.length === 0 ? html`<${Empty} title="Nothing needs you." next="Runs that fail or wait, and machines that don’t do well, are listed here." />`
            : html`<${Attention} items=${items} project=${project} />`}
        <//>
        <${Fleets} fleets=${fleets.items} project=${project} />
      </div>
      <${Latest} project=${project} />`}
  <//>`;
}

/** @param {{project: string | null, running: number, waiting: number, failed: number, gpus: number, busy: number, hourly: number}} props */
function Numbers({ project, running, waiting, failed, gpus, busy, hourly }) {
  const runs = (/** @type {string} */ q) => link(project, "runs", { q });
  const tiles = [
    { title: "Running", value: running, href: runs("status:running") },
    { title: "Waiting", value: waiting, href: runs("status:waiting"), kind: waiting > 0 ? "wait" : "" },
    { title: "Failed in 24 h", value: failed, href: runs("status:failed age:<24h"), kind: failed > 0 ? "bad" : "" },
    { title: "GPUs busy", value: gpus > 0 ? `${Math.round((100 * busy) / gpus)} %` : "–", note: gpus > 0 ? `${shown(busy)} of ${counted(gpus, "GPU")}` : "no GPUs" },
    { title: "Cost now", value: rate(hourly), note: "all machines of the project" },
  ];
  return html`<dl class="tiles">${tiles.map(({ title, value, note, href, kind }) => html`<div key=${title} class="tile ${kind ?? ""}">
    <dt>${title}</dt><dd>${href ? html`<a href=${href} class="number">${value}</a>` : html`<span class="number">${value}</span>`}${note && html`<span class="tile-note">${note}</span>`}</dd></div>`)}</dl>`;
}

/** @param {number} value */
const shown = (value) => (Number.isInteger(value) ? String(value) : value.toFixed(1));
