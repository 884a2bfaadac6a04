// The stages of a job as a bar and as words: how long each took, and why; and those of all jobs of a run, side by side.
import { link } from "../../app/router.js";
import { html, useMemo, useState } from "../../kit/preact.js";
import { Icon } from "../../kit/icon.js";
import { Status } from "../../kit/status.js";
import { Words } from "../../kit/words.js";
import { clock } from "../../kit/time.js";
import { useStore } from "../../kit/use_store.js";
import { exact } from "../../lib/time.js";
import { abreast, countedStates, lasted, stagesOf, timelineOf } from "../../lib/timeline.js";

const FEW = 8; // jobs that are shown at once
const MOST = 64; // that are drawn: the tab Jobs has all
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

/** All jobs over one time: replica by replica, node by node. @param {{run: import("../../types").Run, events: import("../../types").Event[]}} props */
export function AllJobs({ run, events }) {
  const [open, setOpen] = useState(run.jobs.length <= FEW);
  return html`<details class="all-jobs" open=${open} onToggle=${(/** @type {any} */ event) => setOpen(event.currentTarget.open)}>
    <summary><b>All ${run.jobs.length} jobs</b> <span class="soft">${countedStates(run.jobs)}</span></summary>
    ${open && html`<${Lanes} run=${run} events=${events} />`}</details>`;
}

/** @param {{run: import("../../types").Run, events: import("../../types").Event[]}} props */
function Lanes({ run, events }) {
  const now = useStore(clock);
  const known = useMemo(() => run.jobs.slice(0, MOST).map((job) => ({ job, stages: timelineOf(job, events) })), [run, events]);
  const rest = run.jobs.length - known.length;
  return html`<ul class="lanes plain">${abreast(known, now).map(({ job, bars }) => html`<li key=${job.id}>
      <a href=${link(run.project, "runs", run.name, { tab: "logs", job: job.id })}>${job.name}</a><${Status} value=${job.status} />
      <ol class="lane" aria-label="Stages">${bars.map(({ id, title, state, left, width, ms }) => html`<li key=${id} class=${`lane-${id} ${state}`} style=${{ left: `${left}%`, width: `${width}%` }} title=${`${title}: ${lasted(ms)}`}><span class="unseen">${title}: ${lasted(ms)}</span></li>`)}</ol>
    </li>`)}</ul>
    ${rest > 0 && html`<p class="note"><a href=${link(run.project, "runs", run.name, { tab: "jobs" })}>${rest} more among the jobs</a></p>`}`;
}
