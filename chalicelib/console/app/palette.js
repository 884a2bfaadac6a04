// Ctrl-K: go anywhere by a few letters.
import { Dialog } from "../kit/dialog.js";
import { Icon } from "../kit/icon.js";
import { html, useEffect, useId, useMemo, useRef, useState } from "../kit/preact.js";
import { best } from "../lib/match.js";
import { useCollection } from "../data/live.js";
import { useSession } from "../data/session.js";
import { PAGES, hrefOf, shown } from "./pages.js";
import { go, link } from "./router.js";

const MOST = 12;
/** @typedef {{text: string, kind: string, icon: string, href: string}} Entry */

/** @param {{project: string | null, onClose: () => void}} props */
export function Palette({ project, onClose }) {
  const [query, setQuery] = useState("");
  const [at, setAt] = useState(0);
  const entries = useEntries(project);
  const found = useMemo(() => best(query, entries, (entry) => `${entry.text} ${entry.kind}`, MOST), [query, entries]);
  const list = useId();
  const input = useRef(/** @type {any} */ (null));
  useEffect(() => input.current.focus(), []);
  useEffect(() => setAt(0), [query]);
  const open = (/** @type {Entry | undefined} */ entry) => {
    if (!entry) return;
    onClose();
    go(entry.href);
  };
  const onKeyDown = (/** @type {KeyboardEvent} */ event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) setAt((was) => (was + step + found.length) % Math.max(1, found.length));
    else if (event.key === "Enter") open(found[at]);
    else return;
    event.preventDefault();
  };
  return html`<${Dialog} title="Go to" onClose=${onClose}>
    <div class="palette">
      <input ref=${input} role="combobox" aria-label="Go to" aria-expanded="true" aria-controls=${list} autocomplete="off" spellcheck=${false}
        aria-activedescendant=${found[at] ? `${list}-${at}` : undefined} placeholder="A page, a run, a fleet, a project …" value=${query}
        onInput=${(/** @type {any} */ event) => setQuery(event.target.value)} onKeyDown=${onKeyDown} />
      <ul id=${list} role="listbox" aria-label="Found">${found.map((entry, number) => html`<li key=${entry.href} id=${`${list}-${number}`} role="option"
        aria-selected=${number === at} onMouseMove=${() => setAt(number)} onClick=${() => open(entry)}>
        <${Icon} name=${entry.icon} /><span>${entry.text}</span><span class="soft">${entry.kind}</span></li>`)}</ul>
      ${found.length === 0 && html`<p class="soft" role="status">Nothing here has these letters.</p>`}
    </div>
  </${Dialog}>`;
}

/** @param {string | null} project @returns {Entry[]} */
function useEntries(project) {
  const session = useSession(project);
  const runs = useCollection("runs", project).items;
  const fleets = useCollection("fleets", project).items;
  return useMemo(() => {
    const pages = shown(session, project).map((page) => ({ text: page.title, kind: "page", icon: page.icon, href: hrefOf(page, project) }));
    const projects = session.projects.filter((each) => each.name !== project).map((each) => ({ text: each.name, kind: "project", icon: "overview", href: link(each.name, "overview") }));
    const named = (/** @type {any[]} */ items, /** @type {string} */ page, /** @type {string} */ kind) =>
      PAGES.some((each) => each.name === page) ? items.map((each) => ({ text: each.name, kind, icon: page, href: link(each.project, page, each.name) })) : [];
    return [...pages, ...named(runs, "runs", "run"), ...named(fleets, "fleets", "fleet"), ...projects];
  }, [session.user, session.projects, project, runs, fleets]);
}
