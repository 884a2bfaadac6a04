// A dialog that asks for a few values and sends them. What the API refuses is said at the field that it names.
import { Button } from "./button.js";
import { Dialog, confirm } from "./dialog.js";
import { CheckField, SelectField, TextArea, TextField } from "./fields.js";
import { Failed } from "./notice.js";
import { html, useState } from "./preact.js";

/**
 * @typedef {{key: string, label: string, kind?: "text" | "area" | "select" | "check" | "checks", options?: (string | [string, string])[], hint?: any,
 *   start?: any, fixed?: boolean} & Record<string, any>} FormField `fixed`: shown, but not to be changed
 */

/** @param {{title: string, lead?: any, action: string, fields: FormField[], send: (values: Record<string, any>) => Promise<any>, onClose: () => void, wide?: boolean}} props */
export function FormDialog({ title, lead, action, fields, send, onClose, wide }) {
  const start = () => Object.fromEntries(fields.map((field) => [field.key, field.start ?? (field.kind === "check" ? false : field.kind === "checks" ? [] : "")]));
  const [values, setValues] = useState(start);
  const [begun] = useState(() => JSON.stringify(values));
  const [error, setError] = useState(/** @type {any} */ (null));
  const [busy, setBusy] = useState(false);
  const wrong = errorsByField(error, fields);
  const submit = async () => {
    setBusy(true);
    setError(null);
    try {
      await send(values);
      onClose();
    } catch (failed) {
      setError(failed);
      setBusy(false);
    }
  };
  const leave = async () => {
    const typed = JSON.stringify(values) !== begun;
    if (!typed || (await confirm({ title: "Drop what you typed?", action: "Drop it", cancel: "Go on", danger: true }))) onClose();
  };
  return html`<${Dialog} title=${title} onClose=${onClose} onEscape=${leave} onSubmit=${submit} wide=${wide}
    actions=${html`<${Button} onClick=${onClose}>Cancel<//><${Button} type="submit" kind="primary" busy=${busy}>${action}<//>`}>
    ${lead && html`<p>${lead}</p>`}
    ${error && Object.keys(wrong).length === 0 && html`<${Failed} error=${error} />`}
    ${fields.map((field, at) => html`<${Input} key=${field.key} field=${field} first=${at === 0} error=${wrong[field.key]} value=${values[field.key]}
      onInput=${(/** @type {any} */ value) => setValues((was) => ({ ...was, [field.key]: value }))} />`)}
  <//>`;
}

/** @param {{field: FormField, value: any, error?: string, first: boolean, onInput: (value: any) => void}} props */
function Input({ field, value, error, first, onInput }) {
  const { kind = "text", key: _, start: __, fixed, options = [], ...more } = field;
  const given = { ...more, value, error, onInput, disabled: fixed, autofocus: first };
  if (kind === "select") return html`<${SelectField} ...${given} options=${options} />`;
  if (kind === "area") return html`<${TextArea} ...${given} />`;
  if (kind === "check") return html`<${CheckField} label=${field.label} hint=${field.hint} checked=${value} onInput=${onInput} />`;
  if (kind === "checks") return html`<${Checks} field=${field} value=${value} onInput=${onInput} />`;
  return html`<${TextField} autocomplete="off" ...${given} />`;
}

/** Some of several. @param {{field: FormField, value: string[], onInput: (value: string[]) => void}} props */
function Checks({ field, value, onInput }) {
  return html`<fieldset class="checks-field"><legend>${field.label}</legend>
    ${(field.options ?? []).map((each) => {
      const [key, text] = Array.isArray(each) ? each : [each, each];
      return html`<${CheckField} key=${key} label=${text} checked=${value.includes(key)}
        onInput=${(/** @type {boolean} */ on) => onInput(on ? [...value, key] : value.filter((other) => other !== key))} />`;
    })}
    ${field.hint && html`<p class="hint">${field.hint}</p>`}</fieldset>`;
}

/** @param {any} error @param {FormField[]} fields @returns {Record<string, string>} */
function errorsByField(error, fields) {
  const parts = /** @type {any[]} */ (error?.errors ?? []);
  const found = parts.flatMap((part) => {
    const key = String(part.pointer ?? "").split("/")[1];
    return fields.some((field) => field.key === key) ? [[key, [part.detail, part.hint].filter(Boolean).join(" ")]] : [];
  });
  return found.length === parts.length ? Object.fromEntries(found) : {};
}
