// What happened, and who did it: found by actor, by target, by kind and by date, all of which are in the address.
import { setQuery } from "../../app/router.js";
import { get } from "../../data/api.js";
import { useCollection } from "../../data/live.js";
import { Button } from "../../kit/button.js";
import { Empty, Loading } from "../../kit/empty.js";
import { SelectField, TextField } from "../../kit/fields.js";
import { Failed } from "../../kit/notice.js";
import { Page } from "../../kit/page.js";
import { html, useEffect, useState } from "../../kit/preact.js";
import { Events } from "./list.js";

/** @typedef {import("../../types").Event} Event */
/** @typedef {{items: Event[], next: string | null, loading: boolean, error: any}} Loaded */

/** @type {[string, string][]} */
const ACTORS = [["", "by anybody"], ["people", "by people"], ["system", "by the control plane"]];
/** @type {[string, string][]} */
const TYPES = [["", "about anything"], ...["run", "job", "fleet", "instance", "volume", "gateway", "secret", "project", "user"].map((type) => /** @type {[string, string]} */ ([type, `about ${type}s`]))];
const FILTERS = ["by", "user", "type", "target", "until"];
const PATIENCE = 300; // milliseconds after the last letter

/** @param {import("../../types").PageProps} props */
export default function EventsPage({ project, query }) {
  const asked = { by: query.by, user: query.user, target_type: query.type, target: targetOf(query.target), until: query.until };
  const { items, next, loading, error, more, reload } = useEvents(project, asked);
  const filtered = FILTERS.some((key) => query[key]);
  return html`<${Page} title="Events">
    <form class="event-filters" onSubmit=${(/** @type {Event & {preventDefault: () => void}} */ event) => event.preventDefault()} aria-label="Filters">
      <${SelectField} label="Actor" value=${query.by ?? ""} options=${ACTORS} onInput=${(/** @type {string} */ by) => setQuery({ by })} />
      <${Typed} label="User" name="user" value=${query.user ?? ""} placeholder="ana" />
      <${SelectField} label="Kind" value=${query.type ?? ""} options=${TYPES} onInput=${(/** @type {string} */ type) => setQuery({ type })} />
      <${Typed} label="Target" name="target" value=${query.target ?? ""} placeholder="run/train" error=${query.target && !asked.target ? "A kind and a name: run/train" : null} />
      <${TextField} label="Until (UTC)" type="datetime-local" step="1" value=${localText(query.until)} onInput=${(/** @type {string} */ text) => setQuery({ until: text && `${text.length === 16 ? `${text}:00` : text}Z` })} />
      ${filtered && html`<${Button} onClick=${() => setQuery(Object.fromEntries(FILTERS.map((key) => [key, null])))}>Clear<//>`}
    </form>
    <${Failed} error=${error} retry=${reload} />
    ${loading && items.length === 0 ? html`<${Loading} />` : html`<${Events} events=${items} project=${project} current=${query.event}
      empty=${error ? html`` : html`<${Empty} title=${filtered ? "No event fits these filters." : "Nothing has happened yet."} next=${filtered ? "Take one away to see more." : "Submit a run, and its events are here."} />`} />`}
    ${next && html`<p><${Button} busy=${loading} onClick=${more}>Show earlier ones<//></p>`}
  <//>`;
}

/** A field whose text is in the address a moment after the last letter. @param {{label: string, name: string, value: string} & Record<string, any>} props */
function Typed({ label, name, value, ...more }) {
  const [text, setText] = useState(value);
  useEffect(() => setText(value), [value]);
  useEffect(() => {
    if (text === value) return;
    const timer = setTimeout(() => setQuery({ [name]: text.trim() }), PATIENCE);
    return () => clearTimeout(timer);
  }, [text]);
  return html`<${TextField} label=${label} value=${text} onInput=${setText} autocomplete="off" spellcheck=${false} ...${more} />`;
}

/** @param {string | undefined} text */
const targetOf = (text) => (text && /^[a-z-]+\/.+$/.test(text) ? text : undefined);
/** @param {string | undefined} until */
const localText = (until) => (until && !Number.isNaN(Date.parse(until)) ? new Date(until).toISOString().slice(0, 19) : "");

/** Events, page by page; new ones when something of the project has changed.
 * @param {string | null} project @param {Record<string, string | undefined>} asked */
function useEvents(project, asked) {
  const [state, setState] = useState(/** @type {Loaded} */ ({ items: [], next: null, loading: true, error: null }));
  const path = project ? `/projects/${encodeURIComponent(project)}/events` : "/events";
  const key = JSON.stringify([path, asked]);
  const changes = useCollection("runs", project).changedAt + useCollection("instances", project).changedAt;
  const fetched = async (/** @type {string | null} */ cursor, /** @type {Event[]} */ before, /** @type {() => boolean} */ over) => {
    setState((was) => ({ ...was, loading: true }));
    try {
      const page = /** @type {any} */ (await get(path, { ...asked, limit: 100, cursor }));
      if (!over()) setState({ items: [...before, ...page.items], next: page.next, loading: false, error: null });
    } catch (error) {
      if (!over()) setState((was) => ({ ...was, loading: false, error }));
    }
  };
  useEffect(() => {
    let over = false;
    void fetched(null, [], () => over);
    return () => {
      over = true;
    };
  }, [key, changes]);
  return { ...state, more: () => fetched(state.next, state.items, () => false), reload: () => fetched(null, [], () => false) };
}
