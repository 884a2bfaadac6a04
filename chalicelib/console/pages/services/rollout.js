// Versions of a service: which replicas run which, what changed between them, and the way back.
import { get, send } from "../../data/api.js";
import { useSession } from "../../data/session.js";
import { Button } from "../../kit/button.js";
import { Diff } from "../../kit/diff.js";
import { confirm } from "../../kit/dialog.js";
import { Loading } from "../../kit/empty.js";
import { Meter } from "../../kit/meter.js";
import { Failed, Notice } from "../../kit/notice.js";
import { Section } from "../../kit/page.js";
import { html, useEffect, useState } from "../../kit/preact.js";
import { Ago } from "../../kit/time.js";
import { toast, toastFailure } from "../../kit/toast.js";
import { Words } from "../../kit/words.js";
import { lineDiff } from "../../lib/diff.js";
import { counted, rate } from "../../lib/money.js";
import { runPath } from "../../lib/run_facts.js";
import { isRolling, rollout } from "../../lib/services.js";
import { specText } from "../../lib/yaml_text.js";

/** @typedef {import("../../types").Service} Service */
/** @typedef {import("../../types").Revision} Revision */

/** @param {{project: string, service: Service, ended: boolean, reload: () => Promise<void>}} props */
export function Rollout({ project, service, ended, reload }) {
  const { found, error } = useRevisions(project, service);
  const { can } = useSession(project);
  return html`<${Section} title="Revisions" note=${isRolling(service)
      ? "Its replicas are being replaced, one after the other. At no time do fewer get requests than are asked for."
      : service.replicas.length > 0 ? `All replicas run revision ${service.revision}.` : undefined}>
    <${Failed} error=${error} />
    ${!found && !error && html`<${Loading} />`}
    ${found && html`<ol class="revisions">${found.map((revision, at) => html`<${One} key=${revision.revision} revision=${revision} before=${found[at + 1]} service=${service}
      onRollBack=${!ended && !revision.current && can("run", project) ? () => rollBack(project, service, revision, reload) : null} />`)}</ol>`}
  </${Section}>`;
}

/** The specs that the run has had; read again when there is another. @param {string} project @param {Service} service */
function useRevisions(project, service) {
  const [state, setState] = useState(/** @type {{found: Revision[] | null, error: any}} */ ({ found: null, error: null }));
  useEffect(() => {
    const leaving = new AbortController();
    get(`${runPath({ project, name: service.run })}/revisions`, {}, { signal: leaving.signal }).then(
      (page) => setState({ found: page.items, error: null }),
      (error) => !leaving.signal.aborted && setState({ found: null, error }),
    );
    return () => leaving.abort();
  }, [project, service.run, service.revision]);
  return state;
}

/** @param {{revision: Revision, before: Revision | undefined, service: Service, onRollBack: (() => void) | null}} props */
function One({ revision, before, service, onRollBack }) {
  const part = rollout(service).find((each) => each.revision === revision.revision);
  return html`<li class="revision">
    <div class="revision-head"><h3>Revision ${revision.revision}${revision.current ? ", the latest" : ""}</h3>
      <span class="soft"><${Ago} at=${revision.applied_at} />${revision.applied_by && ` by ${revision.applied_by}`}</span>
      ${part && part.total > 0 && html`<${Meter} value=${part.ready} of=${part.total} label=${`Ready replicas of revision ${revision.revision}`} text=${`${part.ready} of ${part.total} ready`} />`}
      ${part && part.draining > 0 && html`<span class="soft">${counted(part.draining, "replica")} finish${part.draining === 1 ? "es" : ""} what is under way</span>`}
      ${onRollBack && html`<${Button} small onClick=${onRollBack}>Roll back to revision ${revision.revision}</${Button}>`}</div>
    ${before && html`<details class="revision-diff"><summary>What changed from revision ${before.revision}</summary>
      <${Diff} label=${`Changes of revision ${revision.revision}`} lines=${lineDiff(specText(before.spec), specText(revision.spec))} /></details>`}
  </li>`;
}

/** @param {string} project @param {Service} service @param {Revision} revision @param {() => Promise<void>} reload */
async function rollBack(project, service, revision, reload) {
  const path = `${runPath({ project, name: service.run })}/roll-back`, body = { revision: revision.revision };
  try {
    const [now, plan] = await Promise.all([get(`${runPath({ project, name: service.run })}/spec`), send("POST", path, body, { query: { dry_run: true } })]);
    const text = html`<p>Its replicas are replaced by ones of that spec, one after the other.${costOf(plan)}</p>
      ${plan.notes.map((/** @type {string} */ note) => html`<${Notice} key=${note}><p><${Words} text=${note} /></p></${Notice}>`)}
      <${Diff} label="What changes" lines=${lineDiff(specText(now), specText(plan.spec))} />`;
    if (!(await confirm({ title: `Roll ${service.run} back to revision ${revision.revision}?`, text, action: "Roll back" }))) return;
    await send("POST", path, body, { headers: { "Idempotency-Key": crypto.randomUUID() } });
    toast(`${service.run} goes back to revision ${revision.revision}.`);
    await reload();
  } catch (error) {
    toastFailure(error);
  }
}

/** What its replicas cost on the cheapest offers. @param {import("../../types").RunPlan} plan */
function costOf(plan) {
  const usd = plan.jobs.reduce((sum, job) => sum + job.count * (job.cheapest_per_hour_usd ?? 0), 0);
  return usd > 0 ? ` They cost ${rate(usd)} on the cheapest offers; while one is replaced, there is one more.` : "";
}
