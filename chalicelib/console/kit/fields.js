// Fields of forms: a label above, help below, and what is wrong beside it, said to screen readers, too.
import { Icon } from "./icon.js";
import { html, useId } from "./preact.js";

/**
 * @typedef {{label: string, hint?: any, error?: string | null, hideLabel?: boolean} & Record<string, any>} FieldProps
 */

/** @param {FieldProps & {id: string, children: any}} props */
function Field({ id, label, hint, error, hideLabel, children }) {
  return html`<div class=${error ? "field wrong" : "field"}>
    <label for=${id} class=${hideLabel ? "unseen" : ""}>${label}</label>
    ${children}
    ${hint && html`<p class="hint" id=${`${id}-hint`}>${hint}</p>`}
    ${error && html`<p class="error" id=${`${id}-error`}>${error}</p>`}
  </div>`;
}

/** @param {string} id @param {FieldProps} props */
function described(id, { hint, error }) {
  const by = [hint && `${id}-hint`, error && `${id}-error`].filter(Boolean).join(" ");
  return { "aria-describedby": by || undefined, "aria-invalid": error ? "true" : undefined };
}

/** @param {FieldProps & {value: string, onInput: (value: string) => void}} props */
export function TextField({ label, hint, error, hideLabel, value, onInput, type = "text", ...more }) {
  const id = useId();
  return html`<${Field} ...${{ id, label, hint, error, hideLabel }}>
    <input id=${id} type=${type} value=${value} ...${described(id, { label, hint, error })} ...${more}
      onInput=${(/** @type {any} */ event) => onInput(event.target.value)} />
  </${Field}>`;
}

/** @param {FieldProps & {value: string, onInput: (value: string) => void, rows?: number}} props */
export function TextArea({ label, hint, error, hideLabel, value, onInput, rows = 6, ...more }) {
  const id = useId();
  return html`<${Field} ...${{ id, label, hint, error, hideLabel }}>
    <textarea id=${id} rows=${rows} value=${value} spellcheck=${false} ...${described(id, { label, hint, error })} ...${more}
      onInput=${(/** @type {any} */ event) => onInput(event.target.value)} />
  </${Field}>`;
}

/** @param {FieldProps & {value: string, options: (string | [string, string])[], onInput: (value: string) => void}} props */
export function SelectField({ label, hint, error, hideLabel, value, options, onInput, ...more }) {
  const id = useId();
  return html`<${Field} ...${{ id, label, hint, error, hideLabel }}>
    <select id=${id} ...${described(id, { label, hint, error })} ...${more} onChange=${(/** @type {any} */ event) => onInput(event.target.value)}>
      ${options.map((each) => {
        const [key, text] = Array.isArray(each) ? each : [each, each];
        return html`<option key=${key} value=${key} selected=${key === value}>${text}</option>`;
      })}
    </select>
  </${Field}>`;
}

/** @param {{label: any, checked: boolean, onInput: (checked: boolean) => void, hint?: any} & Record<string, any>} props */
export function CheckField({ label, checked, onInput, hint, ...more }) {
  const id = useId();
  return html`<div class="field check"><input id=${id} type="checkbox" checked=${checked} ...${more}
      aria-describedby=${hint ? `${id}-hint` : undefined} onChange=${(/** @type {any} */ event) => onInput(event.target.checked)} />
    <label for=${id}>${label}</label>${hint && html`<p class="hint" id=${`${id}-hint`}>${hint}</p>`}</div>`;
}

/** A field that filters what is below; `/` goes there.
 * @param {{label: string, value: string, onInput: (value: string) => void} & Record<string, any>} props */
export function SearchField({ label, value, onInput, ...more }) {
  const id = useId();
  return html`<div class="search"><label class="unseen" for=${id}>${label}</label><${Icon} name="search" />
    <input id=${id} type="search" value=${value} data-filter autocomplete="off" spellcheck=${false} ...${more}
      onInput=${(/** @type {any} */ event) => onInput(event.target.value)} /></div>`;
}
