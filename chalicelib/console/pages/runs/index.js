// All runs of a project: filtered by a language that is also in the address, with the reason of each in the list.
import { PAGES } from "../../app/pages.js";
import { go, link, setQuery } from "../../app/router.js";
import { useCollection } from "../../data/live.js";
import { useSession } from "../../data/session.js";
import { Button } from "../../kit/button.js";
import { Code } from "../../kit/code.js";
import { Empty, Loading } from "../../kit/empty.js";
import { FilterBar, FilterChips } from "../../kit/filter_bar.js";
import { Failed } from "../../kit/notice.js";
import { Page } from "../../kit/page.js";
import { html, useMemo, useState } from "../../kit/preact.js";
import { Table } from "../../kit/table.js";
import { hasTerm, matcher, termsOf, toggled } from "../../lib/filter.js";
import { counted } from "../../lib/money.js";
import { RUN_FIELDS, allText } from "../../lib/run_facts.js";
import { NARROW, useMedia } from "../../kit/use_media.js";
import { sortOf, sortText } from "../../lib/sorting.js";
import { Chosen } from "./actions.js";
import { COLUMNS } from "./columns.js";

/** @typedef {import("../../types").RunSummary} RunSummary */

/** @type {[string, string][]} */
const CHIPS = [["status:active", "Active"], ["status:waiting", "Waiting"], ["status:failed", "Failed"], ["user:me", "Mine"]];
const TALL = 54; // pixels of a row whose reason is below its status
const NEWEST = { key: "submitted", down: true };
/** @param {RunSummary} run */
const keyOf = (run) => run.id;
/** @param {RunSummary} run */
const nameOf = (run) => run.name;
/** @param {RunSummary} run */
const open = (run) => go(link(run.project, "runs", run.name));

/** @param {import("../../types").PageProps} props */
export default function Runs({ project, query }) {
  const { items, loading, error } = useCollection("runs", project);
  const { user, can } = useSession(project);
  const [ids, setIds] = useState(/** @type {Set<string>} */ (new Set()));
  const narrow = useMedia(NARROW);
  const text = query.q ?? "";
  const rows = useMemo(() => {
    const terms = termsOf(text);
    return terms.length === 0 ? items : items.filter(matcher(terms, { fields: RUN_FIELDS, text: allText, me: user.name, now: Date.now() }));
  }, [items, text, user.name]);
  const chosen = useMemo(() => rows.filter((run) => ids.has(run.id)), [rows, ids]);
  const setText = (/** @type {string} */ q) => setQuery({ q: q.trim() });
  const launch = can("run", project) && PAGES.some((page) => page.name === "launch") && html`<${Button} kind="primary" icon="launch" href=${link(project, "launch")}>Launch<//>`;
  return html`<${Page} title="Runs" actions=${launch}>
    <${Failed} error=${error} />
    ${loading && items.length === 0 ? html`<${Loading} />` : items.length === 0 ? !error && html`<${NoRuns} launch=${launch} />` : html`<div>
      <div class="bar"><${FilterBar} label="Filter runs" value=${text} fields=${RUN_FIELDS} rows=${items} onChange=${setText} placeholder="status:running user:me gpu:h100 …" />
        <${FilterChips} terms=${CHIPS} has=${(/** @type {string} */ term) => hasTerm(text, term)} onToggle=${(/** @type {string} */ term) => setText(toggled(text, term))} /></div>
      <${Table} label="Runs" tall reuse columns=${COLUMNS} rows=${rows} keyOf=${keyOf} onOpen=${open} rowHeight=${narrow ? TALL : undefined} selection=${{ ids, onChange: setIds, nameOf }}
        sort=${sortOf(query.sort, NEWEST)} onSort=${(/** @type {any} */ sort) => setQuery({ sort: sortText(sort) })}
        empty=${html`<${Empty} title="No run fits this filter." next=${html`<${Button} small onClick=${() => setText("")}>Show all ${counted(items.length, "run")}<//>`} />`} />
      ${chosen.length > 0 ? html`<${Chosen} runs=${chosen} project=${project} onDone=${() => setIds(new Set())} />`
        : html`<p class="table-foot" role="status">${rows.length === items.length ? counted(rows.length, "run") : `${rows.length} of ${counted(items.length, "run")}`}</p>`}
    </div>`}
  <//>`;
}

/** @param {{launch: any}} props */
function NoRuns({ launch }) {
  return html`<${Empty} title="No runs yet." next=${html`<p>A run is a task, a service or a development environment. Write one in a file, and submit it:</p>`}>
    <div class="sample"><${Code} label="An example" copy text=${"dstack apply -f task.dstack.yml"} /></div>${launch}<//>`;
}
