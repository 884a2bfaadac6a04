// What a run costs: an hour now, and until now, between the moments at which the server says it.
import { clock } from "../../kit/time.js";
import { useStore } from "../../kit/use_store.js";
import { money, rate } from "../../lib/money.js";
import { html } from "../../kit/preact.js";

/** Dollars an hour of the machines that its jobs have now. @param {import("../../types").Run} run */
export const hourly = (run) => run.jobs.reduce((sum, job) => sum + (job.finished_at || !job.instance ? 0 : job.instance.price_per_hour_usd), 0);

/** @param {{run: import("../../types").Run, at: number}} props `at`: when its cost was so */
export function CostSoFar({ run, at }) {
  const now = useStore(clock);
  const since = Math.max(0, now - at) / 3_600_000;
  return html`<span class="number">${money(run.cost_usd + since * hourly(run))}</span>`;
}

/** What stopping means in money. @param {import("../../types").Run} run */
export function stopEffect(run) {
  const price = hourly(run);
  const spent = `It has cost ${money(run.cost_usd)} so far.`;
  if (price === 0) return `${spent} It has no machine that costs anything now.`;
  const machines = new Set(run.jobs.flatMap((job) => (job.instance && !job.finished_at ? [job.instance.name] : []))).size;
  return `${spent} Stopping ends its ${rate(price)} on ${machines === 1 ? "1 machine" : `${machines} machines`}. A machine that its fleet keeps idle goes on costing the project.`;
}
