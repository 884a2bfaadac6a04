// What can be done with several runs at once.
import { refresh } from "../../data/live.js";
import { send } from "../../data/api.js";
import { useSession } from "../../data/session.js";
import { Button } from "../../kit/button.js";
import { confirm } from "../../kit/dialog.js";
import { copyText } from "../../kit/code.js";
import { html, useState } from "../../kit/preact.js";
import { toast, toastFailure } from "../../kit/toast.js";
import { counted, money, rate } from "../../lib/money.js";
import { hasEnded, runPath } from "../../lib/run_facts.js";

/** @typedef {import("../../types").RunSummary} RunSummary */
/** @typedef {{word: string, past: string, danger: boolean, fits: (run: RunSummary) => boolean, effect: (runs: RunSummary[]) => string, call: (run: RunSummary) => Promise<any>}} Action */

const MOST = 5; // runs that one click ends; for more, their number must be typed
const AT_ONCE = 6; // calls

/** @param {RunSummary[]} runs */
const hourly = (runs) => runs.reduce((sum, run) => sum + run.price_per_hour_usd, 0);
/** @param {RunSummary[]} runs */
const spent = (runs) => runs.reduce((sum, run) => sum + run.cost_usd, 0);
/** @param {RunSummary[]} runs */
const saving = (runs) => (hourly(runs) > 0 ? ` Together they cost ${rate(hourly(runs))} now.` : "");

/** @type {Action[]} */
const ACTIONS = [
  { word: "Stop", past: "stopping", danger: false, fits: (run) => !hasEnded(run), effect: (runs) => `Their jobs are asked to end, and get time for that.${saving(runs)}`, call: (run) => send("POST", `${runPath(run)}/stop`, {}) },
  { word: "Abort", past: "aborting", danger: true, fits: (run) => !hasEnded(run), effect: (runs) => `Their jobs end at once, without time to save anything.${saving(runs)}`, call: (run) => send("POST", `${runPath(run)}/stop`, {}, { query: { abort: true } }) },
  { word: "Delete", past: "deleted", danger: true, fits: hasEnded, effect: (runs) => `Their logs, metrics and events go, too. That they cost ${money(spent(runs))} stays in the costs of the project.`, call: (run) => send("DELETE", runPath(run)) },
];

/** @param {{runs: RunSummary[], project: string | null, onDone: () => void}} props */
export function Chosen({ runs, project, onDone }) {
  const { can, user } = useSession(project);
  const [busy, setBusy] = useState(false);
  if (runs.length === 0) return null;
  const own = runs.filter((run) => can("run", run.project) && (run.user === user.name || can("run_all", run.project)));
  const act = async (/** @type {Action} */ action) => {
    const fitting = own.filter(action.fits);
    if (!(await asked(action, fitting))) return;
    setBusy(true);
    await doAll(action, fitting);
    await refresh("runs", project);
    setBusy(false);
    onDone();
  };
  return html`<div class="chosen-bar" role="group" aria-label="Selected runs"><b class="number">${counted(runs.length, "run")} selected</b>
    ${ACTIONS.filter((action) => own.some(action.fits)).map((action) => html`<${Button} key=${action.word} small busy=${busy} onClick=${() => act(action)}>${action.word}<//>`)}
    <${Button} small icon="copy" onClick=${() => copyText(runs.map((run) => run.name).join("\n"))}>Copy names<//>
    <${Button} small kind="plain" onClick=${onDone}>Select none<//></div>`;
}

/** @param {Action} action @param {RunSummary[]} runs */
function asked(action, runs) {
  const names = runs.slice(0, 8).map((run) => run.name);
  return confirm({
    title: `${action.word} ${counted(runs.length, "run")}?`,
    text: html`<p>${action.effect(runs)}</p><ul class="names">${names.map((name) => html`<li key=${name}><code>${name}</code></li>`)}</ul>
      ${runs.length > names.length && html`<p class="soft">and ${counted(runs.length - names.length, "other")}</p>`}`,
    action: action.word,
    danger: action.danger,
    typed: runs.length > MOST ? String(runs.length) : undefined,
  });
}

/** @param {Action} action @param {RunSummary[]} runs */
async function doAll(action, runs) {
  const waiting = [...runs], failed = /** @type {any[]} */ ([]);
  const worker = async () => {
    for (let run = waiting.shift(); run; run = waiting.shift()) await action.call(run).catch((error) => failed.push(error));
  };
  await Promise.all(Array.from({ length: AT_ONCE }, worker));
  if (failed.length < runs.length) toast(`${counted(runs.length - failed.length, "run")}: ${action.past}.`);
  if (failed.length > 0) toastFailure(failed[0]);
}
