// What a configuration would do, as the API's dry run says.
import { get } from "../../data/api.js";
import { useCollection } from "../../data/live.js";
import { Loading } from "../../kit/empty.js";
import { Money } from "../../kit/money.js";
import { Failed, Notice } from "../../kit/notice.js";
import { Section } from "../../kit/page.js";
import { html, useEffect, useState } from "../../kit/preact.js";
import { Diff } from "../../kit/diff.js";
import { Words } from "../../kit/words.js";
import { lineDiff } from "../../lib/diff.js";
import { counted } from "../../lib/money.js";
import { gpuTitle, machinesCost, machinesText } from "../../lib/offers.js";
import { runPath } from "../../lib/run_facts.js";
import { priceBefore } from "../../lib/volume_price.js";
import { topValue } from "../../lib/yaml_place.js";
import { specText } from "../../lib/yaml_text.js";

/** @typedef {import("../../types").RunPlan} RunPlan */

/** @param {{project: string, text: string, plan: any, problem: any, asking: boolean, action: any}} props */
export function Plan({ project, text, plan, problem, asking, action }) {
  return html`<${Section} title="Plan" actions=${action}>
    <div class="plan" aria-live="polite" aria-busy=${asking}>
      ${problem ? html`<${Refusal} problem=${problem} />` : plan ? html`<${Meaning} project=${project} text=${text} plan=${plan} />` : html`<${Loading} text="Asking for the plan …" />`}
    </div>
  </${Section}>`;
}

/** @param {{problem: any}} props */
function Refusal({ problem }) {
  const placed = (problem.errors ?? []).length;
  if (problem.code !== "invalid" || placed === 0) return html`<${Failed} error=${problem} />`;
  return html`<${Notice} kind="warn"><p>${placed === 1 ? "One thing is" : `${placed} things are`} wrong with it: see below the text.</p></${Notice}>`;
}

const WORDS = /** @type {Record<string, (name: string) => string>} */ ({
  create: (name) => `Creates ${name}.`,
  change: (name) => `Changes ${name} in place.`,
  none: (name) => `${name} is so already: nothing would change.`,
});

/** @param {{project: string, text: string, plan: any}} props */
function Meaning({ project, text, plan }) {
  const name = plan.name ?? topValue(text, "name");
  return html`<p class="plan-action">${(WORDS[plan.action] ?? String)(name || "it, under a name of its own")}</p>
    ${(plan.jobs ?? []).map((/** @type {any} */ job, /** @type {number} */ number) => html`<${Jobs} key=${number} job=${job} />`)}
    ${plan.machines && html`<${Machines} machines=${plan.machines} />`}
    ${topValue(text, "type") === "volume" && html`<${VolumePrice} project=${project} text=${text} />`}
    ${plan.notes?.length > 0 && html`<ul class="plan-notes">${plan.notes.map((/** @type {string} */ note) => html`<li key=${note}><${Words} text=${note} /></li>`)}</ul>`}
    ${plan.action === "change" && plan.spec && html`<${Changes} project=${project} plan=${plan} />`}`;
}

/** @param {{project: string, text: string}} props */
function VolumePrice({ project, text }) {
  const { items } = useCollection("volumes", project);
  const [backend, region, size] = ["backend", "region", "size"].map((key) => topValue(text, key));
  return html`<p class="soft">${priceBefore({ backend: backend ?? "", region: region ?? "", size: size ?? "" }, items)}</p>`;
}

/** @param {{job: RunPlan["jobs"][number]}} props */
function Jobs({ job }) {
  if (job.offers === 0) {
    return html`<${Notice} kind="warn"><p>${counted(job.count, "job")}, and no machine for it: it would wait. See what there is among the offers, or ask for less.</p></${Notice}>`;
  }
  return html`<div class="plan-job"><p><b>${counted(job.count, "job")}</b>, ${counted(job.offers, "offer")}, from <${Money} usd=${job.cheapest_per_hour_usd} hourly /> each</p>
    <${Best} offers=${job.best} /></div>`;
}

/** What a fleet's machines would be, and cost together. @param {{machines: import("../../types").PlannedMachines}} props */
function Machines({ machines }) {
  const { at_once: now, most, offers, best } = machines;
  if (offers === 0) return html`<${Notice} kind="warn"><p>No offer fits it now: it would have no machines. See what there is among the offers, or ask for less.</p></${Notice}>`;
  return html`<div class="plan-job"><p><b>${machinesText(now, most)}</b>, ${counted(offers, "offer")}: ${machinesCost(machines)}</p><${Best} offers=${best} /></div>`;
}

/** @param {{offers: RunPlan["jobs"][number]["best"]}} props */
const Best = ({ offers }) => html`<table class="plain-table"><caption class="unseen">The first offers that would be tried</caption>
  <thead><tr><th scope="col">GPU</th><th scope="col">Where</th><th scope="col">Machine</th><th scope="col" class="right">Price</th></tr></thead>
  <tbody>${offers.map((offer, number) => html`<tr key=${number}><td>${gpuTitle(offer.resources)}</td><td>${offer.backend} <span class="soft">${offer.region}</span></td>
    <td>${offer.type}${offer.spot ? " · spot" : ""}</td><td class="right"><${Money} usd=${offer.price_per_hour_usd} hourly /></td></tr>`)}</tbody></table>`;

/** @param {{project: string, plan: RunPlan}} props */
function Changes({ project, plan }) {
  const [before, setBefore] = useState(/** @type {any} */ (null));
  useEffect(() => {
    void get(`${runPath({ project, name: plan.name })}/spec`).then(setBefore, () => setBefore(null));
  }, [plan.name]);
  return before && html`<${Diff} label="What changes" lines=${lineDiff(specText(before), specText(plan.spec))} />`;
}
