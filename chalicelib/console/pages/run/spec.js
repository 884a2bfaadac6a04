// What a run was submitted with, now and before, and what has changed between.
import { setQuery } from "../../app/router.js";
import { get, send } from "../../data/api.js";
import { useSession } from "../../data/session.js";
import { Button } from "../../kit/button.js";
import { Code } from "../../kit/code.js";
import { Diff } from "../../kit/diff.js";
import { confirm } from "../../kit/dialog.js";
import { SelectField } from "../../kit/fields.js";
import { Failed } from "../../kit/notice.js";
import { html, useEffect, useMemo, useState } from "../../kit/preact.js";
import { Words } from "../../kit/words.js";
import { toast, toastFailure } from "../../kit/toast.js";
import { lineDiff } from "../../lib/diff.js";
import { hasEnded, runPath } from "../../lib/run_facts.js";
import { ago } from "../../lib/time.js";
import { specText } from "../../lib/yaml_text.js";

/** @typedef {import("../../types").Run} Run */
/** @typedef {import("../../types").Revision} Revision */

/** @param {{run: Run, query: Record<string, string>, reload: () => Promise<void>}} props */
export function Spec({ run, query, reload }) {
  const { items, error } = useRevisions(run);
  const now = /** @type {Revision | undefined} */ (items.find((each) => each.current && each.run_id === run.id));
  const shown = items.find((each) => idOf(each) === query.rev) ?? now;
  const before = items.find((each) => idOf(each) === query.with);
  const name = (/** @type {Revision} */ each) => named(each, run.id);
  const text = useMemo(() => specText(shown?.spec ?? run.spec), [shown, run.spec]);
  return html`<div class="spec"><${Failed} error=${error} />
    ${items.length > 1 && html`<div class="spec-tools">
      <${SelectField} label="Spec" value=${shown ? idOf(shown) : ""} options=${items.map(name)} onInput=${(/** @type {string} */ rev) => setQuery({ rev })} />
      <${SelectField} label="Compared with" value=${query.with ?? ""} options=${[["", "nothing"], ...items.filter((each) => each !== shown).map(name)]} onInput=${(/** @type {string} */ other) => setQuery({ with: other })} />
      ${shown && now && shown !== now && shown.run_id === now.run_id && html`<${RollBack} run=${run} revision=${shown} reload=${reload} />`}
    </div>`}
    <p class="soft">${before && shown ? "Lines with − are only in the other, those with + only in this one." : "Without what is so by default."}</p>
    ${before && shown ? html`<${Diff} lines=${lineDiff(specText(before.spec), text)} label="Changes of the spec" />` : html`<${Code} text=${text} copy label="Configuration" />`}
  </div>`;
}

/** @param {Revision} revision */
const idOf = ({ run_id: id, revision }) => `${id}.${revision}`;

/** @param {Revision} each @param {string} run @returns {[string, string]} */
function named(each, run) {
  const when = each.applied_at ? `${ago(Date.parse(each.applied_at), Date.now())}${each.applied_by ? ` by ${each.applied_by}` : ""}` : "before that";
  const which = each.run_id !== run ? "an earlier run" : each.current ? "now" : `revision ${each.revision}`;
  return [idOf(each), `${which}: ${when}`];
}

/** The specs of the run, and of those whose name it took. @param {Run} run */
function useRevisions(run) {
  const [state, setState] = useState(/** @type {{items: Revision[], error: any}} */ ({ items: [], error: null }));
  useEffect(() => {
    const leaving = new AbortController();
    get(`${runPath(run)}/revisions`, { earlier: true }, { signal: leaving.signal })
      .then(({ items }) => setState({ items, error: null }))
      .catch((error) => !leaving.signal.aborted && setState((was) => ({ ...was, error })));
    return () => leaving.abort();
  }, [run.id, run.revision, run.status]);
  return state;
}

/** @param {{run: Run, revision: Revision, reload: () => Promise<void>}} props */
function RollBack({ run, revision, reload }) {
  const { can } = useSession(run.project);
  if (hasEnded(run) || !can("run", run.project)) return null;
  const act = async () => {
    const path = `${runPath(run)}/roll-back`, body = { revision: revision.revision };
    try {
      const { notes } = /** @type {import("../../types").RunPlan} */ (await send("POST", path, body, { query: { dry_run: true } }));
      const text = html`<p>The run gets the spec of revision ${revision.revision} again, as a new revision. Its machines and its price stay unless the spec asks for others.</p>
        ${notes.length > 0 && html`<ul>${notes.map((note, index) => html`<li key=${index}><${Words} text=${note} /></li>`)}</ul>`}`;
      if (!(await confirm({ title: `Roll ${run.name} back?`, text, action: "Roll back" }))) return;
      await send("POST", path, body, { headers: { "Idempotency-Key": crypto.randomUUID() } });
      toast(`${run.name} goes back to revision ${revision.revision}.`);
      setQuery({ rev: null, with: null });
      await reload();
    } catch (error) {
      toastFailure(error);
    }
  };
  return html`<${Button} onClick=${act}>Roll back to this<//>`;
}
