import { link } from "../../app/router.js";
import { html } from "../../kit/preact.js";
import { blocksOf, claimText } from "../../lib/machines.js";

/** A machine's blocks as a map: each part is as wide as the share that a job has, and leads to its run.
 * @param {{instance: import("../../types").Instance, runs: Map<string, import("../../types").RunSummary>, large?: boolean}} props */
export function Blocks({ instance, runs, large }) {
  const parts = blocksOf(instance, runs);
  const busy = `${instance.busy_blocks} of ${instance.blocks} ${instance.blocks === 1 ? "block" : "blocks"} in use`;
  return html`<ul class=${large ? "blocks large" : "blocks"} aria-label=${`${instance.name}: ${busy}`}>${parts.map(({ from, count, claim, run }) => {
    const where = instance.blocks === 1 ? "" : count === 1 ? `block ${from}` : `blocks ${from} to ${from + count - 1}`;
    const text = claim ? claimText(claim, run) : "free";
    return html`<li key=${from} class=${claim ? "block busy" : "block"} style=${{ flexGrow: count }} title=${[text, where].filter(Boolean).join(": ")}>
      ${run ? html`<a href=${link(run.project, "runs", run.name)}>${text}</a>` : html`<span>${text}</span>`}</li>`;
  })}</ul>`;
}
