// Why a run waits, or never started: what was ruled out, and the smallest change that would help.
import { send, get } from "../../data/api.js";
import { Button } from "../../kit/button.js";
import { Failed } from "../../kit/notice.js";
import { Section } from "../../kit/page.js";
import { html, useState } from "../../kit/preact.js";
import { Words } from "../../kit/words.js";
import { rate } from "../../lib/money.js";
import { hasEnded, runPath } from "../../lib/run_facts.js";
import { reason, reasonsOf } from "../../lib/why.js";

/** @param {{run: import("../../types").Run}} props */
export function Why({ run }) {
  const reasons = reasonsOf(run.why);
  if (reasons.length === 0 || run.status === "running" || run.status === "done") return null;
  const title = hasEnded(run) ? (run.status === "failed" ? "Why it failed" : "Why it ended") : run.status === "terminating" ? "Why it ends" : "Why it waits";
  const waits = run.status === "submitted" || run.status === "pending";
  return html`<${Section} title=${title}><${Reasons} reasons=${reasons} />${waits && html`<${Now} run=${run} />`}<//>`;
}

/** @param {{reasons: import("../../lib/why.js").Reason[]}} props */
const Reasons = ({ reasons }) => html`<ul class="reasons">${reasons.map(({ text, change }, index) => html`<li key=${index} class=${change ? "" : "remark"}>
  <span><${Words} text=${text} /></span>
  ${change && html`<span class="change"><b>What would help:</b> <${Words} text=${change} /></span>`}
</li>`)}</ul>`;

// The plan of the same spec as of now: a fleet may have changed since the run was last looked at.
/** @param {{run: import("../../types").Run}} props */
function Now({ run }) {
  const [state, setState] = useState(/** @type {{plan?: import("../../types").RunPlan, error?: any, busy?: boolean}} */ ({}));
  const ask = async () => {
    setState({ ...state, busy: true });
    const path = `${runPath(run)}/spec`;
    try {
      setState({ plan: await send("PUT", path, await get(path), { query: { dry_run: true } }) });
    } catch (error) {
      setState({ error });
    }
  };
  const { plan, error, busy } = state;
  return html`<div class="why-now"><${Button} small busy=${busy} onClick=${ask}>Check again now<//>
    <${Failed} error=${error} />
    ${plan && html`<p role="status">${offersText(plan)}</p><${Reasons} reasons=${plan.notes.map(reason)} />`}</div>`;
}

/** @param {import("../../types").RunPlan} plan */
function offersText({ jobs }) {
  const offers = jobs.reduce((sum, job) => sum + job.offers, 0);
  const from = Math.min(...jobs.map((job) => job.cheapest_per_hour_usd ?? Infinity));
  if (offers === 0) return "No machine and no offer fits now.";
  return `${offers === 1 ? "1 machine or offer fits" : `${offers} machines and offers fit`} now, from ${rate(from)}.`;
}
