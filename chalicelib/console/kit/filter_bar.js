// A field for the language of filters, which suggests how a word goes on, and says what it doesn't understand.
import { problemWith, suggestions, termsOf } from "../lib/filter.js";
import { Icon } from "./icon.js";
import { html, useEffect, useId, useMemo, useRef, useState } from "./preact.js";

const PAUSE = 150; // milliseconds after the last letter

/** @param {{label: string, value: string, fields: Record<string, import("../lib/filter.js").FilterField>, rows: any[],
 *   onChange: (text: string) => void, placeholder?: string}} props */
export function FilterBar({ label, value, fields, rows, onChange, placeholder }) {
  const [text, setText] = useState(value);
  const [open, setOpen] = useState(false);
  const [at, setAt] = useState(-1);
  const input = useRef(/** @type {any} */ (null));
  const sent = useRef(value);
  const id = useId();
  useEffect(() => {
    if (value !== sent.current) setText(value);
    sent.current = value;
  }, [value]);
  useEffect(() => {
    if (text === sent.current) return;
    const timer = setTimeout(() => {
      sent.current = text;
      onChange(text);
    }, PAUSE);
    return () => clearTimeout(timer);
  }, [text]);
  const cursor = input.current?.selectionStart ?? text.length;
  const found = useMemo(() => (open ? suggestions(text.slice(0, cursor), fields, rows) : []), [open, text, cursor, rows]);
  const wrong = problemWith(termsOf(text), fields);
  const take = (/** @type {{text: string} | undefined} */ chosen) => {
    if (!chosen) return;
    const before = text.slice(0, cursor).replace(/\S*$/, "") + chosen.text;
    const after = text.slice(cursor);
    setText(before + (chosen.text.endsWith(":") ? "" : " ") + after.trimStart());
    setAt(-1);
    input.current.focus();
  };
  const onKeyDown = (/** @type {KeyboardEvent} */ event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step && found.length > 0) setAt((was) => (was + step + found.length + (was < 0 && step < 0 ? 1 : 0)) % found.length);
    else if ((event.key === "Enter" || event.key === "Tab") && found[at]) take(found[at]);
    else if (event.key === "Escape" && open) setOpen(false);
    else if (event.key === "Escape") input.current.blur();
    else return;
    event.preventDefault();
    event.stopPropagation();
  };
  return html`<div class="filter">
    <div class="search">
      <label class="unseen" for=${id}>${label}</label><${Icon} name="search" />
      <input id=${id} ref=${input} type="search" role="combobox" data-filter value=${text} placeholder=${placeholder} autocomplete="off" spellcheck=${false}
        aria-expanded=${found.length > 0} aria-controls=${`${id}-list`} aria-activedescendant=${found[at] ? `${id}-${at}` : undefined}
        aria-invalid=${wrong ? "true" : undefined} aria-describedby=${wrong ? `${id}-wrong` : undefined}
        onInput=${(/** @type {any} */ event) => { setText(event.target.value); setOpen(true); setAt(-1); }}
        onFocus=${() => setOpen(true)} onBlur=${() => setOpen(false)} onKeyDown=${onKeyDown} />
      ${found.length > 0 && html`<ul class="suggestions" id=${`${id}-list`} role="listbox" aria-label="Suggestions">${found.map((each, number) => html`
        <li key=${each.text} id=${`${id}-${number}`} role="option" aria-selected=${number === at} onMouseDown=${(/** @type {Event} */ event) => { event.preventDefault(); take(each); }}>
          <code>${each.text}</code><span class="soft">${each.about}</span></li>`)}</ul>`}
    </div>
    ${wrong && !open && html`<p class="error" id=${`${id}-wrong`} role="alert">${wrong}</p>`}
  </div>`;
}

/** Filters that are one click away. @param {{value: string, terms: [string, string][], has: (term: string) => boolean, onToggle: (term: string) => void}} props */
export function FilterChips({ terms, has, onToggle }) {
  return html`<div class="chips" role="group" aria-label="Quick filters">${terms.map(([term, text]) => html`<button key=${term} type="button" class="chip"
    aria-pressed=${has(term)} title=${term} onClick=${() => onToggle(term)}>${text}</button>`)}</div>`;
}
