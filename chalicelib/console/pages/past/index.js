// The project as it was at a moment of the last day: its runs, fleets and machines. Nothing can be done here.
import { link, setQuery } from "../../app/router.js";
import { Empty, Loading } from "../../kit/empty.js";
import { Money } from "../../kit/money.js";
import { Failed } from "../../kit/notice.js";
import { Page, Section } from "../../kit/page.js";
import { html, useMemo } from "../../kit/preact.js";
import { Status } from "../../kit/status.js";
import { Table } from "../../kit/table.js";
import { clock } from "../../kit/time.js";
import { useStore } from "../../kit/use_store.js";
import { STEP, afterwards, instantOf, instantText } from "../../lib/past.js";
import { ago, duration, exact, millis } from "../../lib/time.js";
import { useMarks, usePast } from "./states.js";
import { MARKS, PastBanner, Travel } from "./travel.js";

/** @typedef {import("../../types").Past} Past */
/** @typedef {Past["runs"][number]} RunThen */
/** @typedef {Past["instances"][number]} MachineThen */

/** @param {string} project @param {number} at @returns {import("../../kit/table.js").Column[]} */
const runColumns = (project, at) => [
  { key: "name", title: "Run", cell: (/** @type {RunThen} */ run) => html`<a href=${link(project, "runs", run.name, { at: instantText(at) })}>${run.name}</a>` },
  { key: "status", title: "Status", width: 11, cell: (/** @type {RunThen} */ run) => html`<${Status} value=${run.status} title=${run.reason ?? undefined} />` },
  { key: "user", title: "User", width: 8, wide: true, cell: (/** @type {RunThen} */ run) => run.user },
  { key: "where", title: "Machines", cell: (/** @type {RunThen} */ run) => run.jobs.flatMap((job) => (job.instance ? [job.instance] : [])).join(", ") },
  { key: "age", title: "Age then", width: 8, align: "right", wide: true, cell: (/** @type {RunThen} */ run) => html`<span title=${exact(millis(run.submitted_at))}>${duration(at - millis(run.submitted_at))}</span>` },
  { key: "price", title: "Price", width: 7, align: "right", cell: (/** @type {RunThen} */ run) => html`<${Money} usd=${run.price_per_hour_usd || null} hourly />` },
];

/** @type {import("../../kit/table.js").Column[]} */
const MACHINES = [
  { key: "name", title: "Machine", cell: (/** @type {MachineThen} */ each) => each.name },
  { key: "fleet", title: "Fleet", width: 9, cell: (/** @type {MachineThen} */ each) => each.fleet ?? "" },
  { key: "status", title: "Status", width: 10, cell: (/** @type {MachineThen} */ each) => html`<${Status} value=${each.unreachable ? "unreachable" : each.status} />` },
  { key: "gpu", title: "GPUs", width: 8, cell: (/** @type {MachineThen} */ each) => (each.gpus ? `${each.gpu ?? "GPU"}×${each.gpus}` : "") },
  { key: "where", title: "Where", wide: true, cell: (/** @type {MachineThen} */ each) => `${each.backend} ${each.region === each.backend ? "" : each.region}` },
  { key: "price", title: "Price", width: 7, align: "right", cell: (/** @type {MachineThen} */ each) => html`<${Money} usd=${each.price_per_hour_usd || null} hourly />` },
];

/** @param {import("../../types").PageProps} props */
export default function PastPage(props) {
  const project = /** @type {string} */ (props.project);
  const now = Math.floor(useStore(clock) / STEP) * STEP + STEP; // the day moves on by steps, so that marks stay where they are
  const at = Math.min(instantOf(props.query.at, Date.now()), Date.now());
  const shown = props.query.at ? at : Math.floor(at / STEP) * STEP;
  const marks = useMarks(project);
  const { state, error, loading } = usePast(project, shown);
  const onAt = (/** @type {number} */ next) => setQuery({ at: instantText(next) });
  return html`<${Page} title="Time travel">
    <${PastBanner} at=${shown} now=${Date.now()} present=${link(project, "overview")} final=${state?.final} />
    <${Travel} at=${shown} now=${now} marks=${marks} state=${state} onAt=${onAt} />
    <${Failed} error=${error} />
    ${!state ? !error && html`<${Loading} />` : html`<div class=${loading ? "past-state loading-next" : "past-state"}><${Then} project=${project} at=${shown} state=${state} /></div>`}
    <${Happened} marks=${marks} at=${shown} onAt=${onAt} />
  <//>`;
}

/** @param {{project: string, at: number, state: Past}} props */
function Then({ project, at, state }) {
  const columns = useMemo(() => runColumns(project, at), [project, at]);
  const fleets = state.fleets.map((fleet) => `${fleet.name} (${fleet.status})`).join(", ");
  return html`<${Section} title=${`Runs: ${state.runs.length}`} flush><${Table} label="Runs then" columns=${columns} rows=${state.runs} keyOf=${(/** @type {RunThen} */ run) => run.id}
      empty=${html`<${Empty} title="There was no run." />`} /><//>
    <${Section} title=${`Machines: ${state.instances.length}`} note=${fleets && `Fleets: ${fleets}`} flush><${Table} label="Machines then" columns=${MACHINES} rows=${state.instances} keyOf=${(/** @type {MachineThen} */ each) => each.id}
      empty=${html`<${Empty} title="There was no machine." />`} /><//>`;
}

/** @param {{marks: import("../../types").Mark[], at: number, onAt: (at: number) => void}} props */
function Happened({ marks, at, onAt }) {
  if (marks.length === 0) return null;
  return html`<${Section} title="Failures, deployments, scaling"><ul class="past-marks">${marks.toReversed().slice(0, 50).map((mark, index) => html`<li key=${index}>
    <button type="button" class=${`past-mark ${MARKS[mark.kind]}`} aria-current=${afterwards(mark.at) === at ? "true" : undefined} onClick=${() => onAt(afterwards(mark.at))}>
      <span class="number" title=${exact(Date.parse(mark.at))}>${ago(Date.parse(mark.at), Date.now())}</span><b>${mark.kind}</b><span>${mark.target.type} ${mark.target.name}: ${mark.text}</span></button></li>`)}</ul><//>`;
}
