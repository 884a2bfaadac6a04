// What can be done with a run: stop, abort, apply again, clone, delete. Each says what it means in money first.
import { go, link } from "../../app/router.js";
import { get, send } from "../../data/api.js";
import { useSession } from "../../data/session.js";
import { Button } from "../../kit/button.js";
import { confirm } from "../../kit/dialog.js";
import { Menu } from "../../kit/menu.js";
import { html } from "../../kit/preact.js";
import { Words } from "../../kit/words.js";
import { toast, toastFailure } from "../../kit/toast.js";
import { money, rate } from "../../lib/money.js";
import { hasEnded, runPath } from "../../lib/run_facts.js";
import { stopEffect } from "./cost.js";

/** @typedef {import("../../types").Run} Run */

/** @param {{run: Run, reload: () => Promise<void>}} props */
export function Actions({ run, reload }) {
  const { can, user } = useSession(run.project);
  const mine = user?.name === run.user ? can("run", run.project) : can("run_all", run.project);
  const clone = can("run", run.project) && html`<${Button} icon="copy" href=${link(run.project, "launch", { from: run.name })}>Clone<//>`;
  if (!mine) return clone;
  if (hasEnded(run)) {
    return html`<${Button} onClick=${() => applyAgain(run, reload)}>Apply again<//>${clone}
      <${Menu} title="" label="More actions" icon="more" items=${[{ title: "Delete", icon: "trash", danger: true, onSelect: () => remove(run) }]} />`;
  }
  return html`${can("run", run.project) && html`<${Button} href=${link(run.project, "launch", { change: run.name })}>Change<//>`}${clone}<${Menu} title="Stop" icon="stop" items=${[
    { title: "Stop: its jobs get time to end", icon: "stop", onSelect: () => stop(run, false, reload) },
    { title: "Abort: end its jobs at once", icon: "cross", danger: true, onSelect: () => stop(run, true, reload) },
  ]} />`;
}

/** @param {Run} run @param {boolean} abort @param {() => Promise<void>} reload */
async function stop(run, abort, reload) {
  const text = html`<p>${abort ? "Its jobs end at once, without time to save anything." : "Its jobs are asked to end, and get time for that."}</p><p>${stopEffect(run)}</p>`;
  const word = abort ? "Abort" : "Stop";
  if (!(await confirm({ title: `${word} ${run.name}?`, text, action: word, danger: abort }))) return;
  await done(send("POST", `${runPath(run)}/stop`, {}, { query: { abort } }), `${run.name}: ${abort ? "aborting" : "stopping"}.`, reload);
}

/** @param {Run} run @param {() => Promise<void>} reload */
async function applyAgain(run, reload) {
  const path = `${runPath(run)}/spec`;
  try {
    const spec = await get(path);
    const plan = await send("PUT", path, spec, { query: { dry_run: true } });
    if (!(await confirm({ title: `Apply ${run.name} again?`, text: planned(plan), action: "Apply" }))) return;
    await done(send("PUT", path, spec, { headers: { "Idempotency-Key": crypto.randomUUID() } }), `${run.name} is submitted.`, reload);
  } catch (error) {
    toastFailure(error);
  }
}

/** @param {import("../../types").RunPlan} plan */
function planned({ jobs, notes }) {
  const offers = jobs.reduce((sum, job) => sum + job.offers, 0);
  const from = jobs.reduce((sum, job) => sum + job.count * (job.cheapest_per_hour_usd ?? 0), 0);
  const to = jobs.reduce((sum, job) => sum + job.count * (job.dearest_per_hour_usd ?? 0), 0);
  return html`<p>${offers === 0 ? "There is no place for it now." : priceText(from, to)}
      ${" "}Files that were uploaded with it aren't sent again; <code>dstack apply</code> sends them.</p>
    ${notes.length > 0 && html`<ul>${notes.map((note, index) => html`<li key=${index}><${Words} text=${note} /></li>`)}</ul>`}`;
}

/** @param {number} from @param {number} to */
function priceText(from, to) {
  if (from === to) return from === 0 ? "It costs nothing." : `It costs ${rate(from)}.`;
  return `It costs ${from === 0 ? "nothing on machines that are there" : `${rate(from)} on the cheapest offers`}, up to ${rate(to)} on others.`;
}

/** @param {Run} run */
async function remove(run) {
  const text = `Its log, metrics and events go, too. That it cost ${money(run.cost_usd)} stays in the costs of the project.`;
  if (!(await confirm({ title: `Delete ${run.name}?`, text, action: "Delete", danger: true }))) return;
  await done(send("DELETE", runPath(run)), `${run.name} is deleted.`, async () => go(link(run.project, "runs")));
}

/** @param {Promise<any>} call @param {string} text @param {() => Promise<void>} then */
async function done(call, text, then) {
  try {
    await call;
    toast(text);
    await then();
  } catch (error) {
    toastFailure(error);
  }
}
