// The stages of a job as a bar and as words: how long each took, and why.
import { html } from "../../kit/preact.js";
import { Icon } from "../../kit/icon.js";
import { Words } from "../../kit/words.js";
import { clock } from "../../kit/time.js";
import { useStore } from "../../kit/use_store.js";
import { exact } from "../../lib/time.js";
import { lasted, stagesOf } from "../../lib/timeline.js";

const ICONS = { done: "check", now: "ring", failed: "cross" };

/** @param {{run: import("../../types").Run, job: import("../../types").Job, events: import("../../types").Event[]}} props */
export function Timeline({ run, job, events }) {
  const now = useStore(clock);
  const stages = stagesOf(run, job, events);
  return html`<ol class="timeline" aria-label="Stages">${stages.map((stage) => html`<li key=${stage.id} class=${`stage ${stage.state}`}>
    <span class="stage-head"><${Icon} name=${ICONS[stage.state]} /><b>${stage.title}</b>
      <span class="number" title=${`from ${exact(stage.from)}`}>${lasted(Math.max(0, (stage.to ?? now) - stage.from))}</span>
      ${stage.state === "failed" && html`<span class="unseen">failed</span>`}</span>
    ${stage.why && html`<span class="stage-why" title=${stage.why}><${Words} text=${stage.why} /></span>`}
  </li>`)}</ol>`;
}
