// A field for YAML: a plain text area, so that keyboards, screen readers and input methods work as everywhere, with
// numbers and marks beside its lines, what is wrong below it, and what the schema says about the place of the cursor.
import { Button } from "../../kit/button.js";
import { html, useEffect, useId, useMemo, useRef, useState } from "../../kit/preact.js";
import { Words } from "../../kit/words.js";
import { hintAt, keysAt } from "../../lib/schema.js";
import { newLine, placeAt, topValue } from "../../lib/yaml_place.js";

/** @typedef {{line: number, field: string, text: string, hint: string | null}} Wrong `line`: 0 if it is unknown */

/** @param {{text: string, onText: (text: string) => void, problems: Wrong[], onApply: () => void}} props */
export function Editor({ text, onText, problems, onApply }) {
  const id = useId(), area = useRef(/** @type {any} */ (null)), gutter = useRef(/** @type {any} */ (null));
  const [at, setAt] = useState(0);
  const follow = () => setAt(area.current.selectionStart);
  const scroll = () => (gutter.current.scrollTop = area.current.scrollTop);
  const onKeyDown = (/** @type {KeyboardEvent} */ event) => {
    if ((event.ctrlKey || event.metaKey) && event.key === "Enter") event.repeat || onApply();
    else if (event.key === "Enter" && !event.shiftKey && !event.altKey && !event.isComposing) insert(area.current, newLine(text, area.current.selectionStart));
    else return;
    event.preventDefault();
  };
  const wrong = new Set(problems.map((problem) => problem.line));
  const rows = text.split("\n").length;
  return html`<div class="field ${problems.length ? "wrong" : ""}">
    <label for=${id}>Configuration</label>
    <div class="editor">
      <div class="editor-gutter" ref=${gutter} aria-hidden="true">${Array.from({ length: rows }, (_, number) => html`<span key=${number}
        class=${wrong.has(number + 1) ? "wrong" : ""}>${number + 1}</span>`)}</div>
      <textarea id=${id} ref=${area} value=${text} rows=${Math.min(30, Math.max(14, rows + 1))} wrap="off" spellcheck=${false} autocapitalize="off" autocomplete="off"
        aria-describedby=${`${id}-wrong ${id}-help`} aria-invalid=${problems.length ? "true" : undefined}
        onInput=${(/** @type {any} */ event) => onText(event.target.value)} onKeyDown=${onKeyDown} onScroll=${scroll} onKeyUp=${follow} onClick=${follow} onFocus=${follow} />
    </div>
    <p class="hint" id=${`${id}-help`}>YAML. Ctrl+Enter applies it.</p>
    <ul class="editor-wrong plain" id=${`${id}-wrong`} aria-live="polite">${problems.map((problem) => html`<li key=${`${problem.line} ${problem.field} ${problem.text}`}>
      <${OneProblem} problem=${problem} onShow=${() => toLine(area.current, text, problem.line)} /></li>`)}</ul>
    <${Hints} text=${text} at=${at} onInsert=${(/** @type {string} */ more) => insert(area.current, more)} />
  </div>`;
}

/** @param {{problem: Wrong, onShow: () => void}} props */
function OneProblem({ problem, onShow }) {
  return html`${problem.line > 0 && html`<${Button} small onClick=${onShow}>Line ${problem.line}</${Button}>`}
    <span>${problem.field && html`<code>${problem.field}</code>: `}<${Words} text=${problem.text} />${problem.hint && html`<span class="soft"> · <${Words} text=${problem.hint} /></span>`}</span>`;
}

/** As if it were typed, so that it can be undone. @param {HTMLTextAreaElement} area @param {string} more */
function insert(area, more) {
  area.focus();
  if (document.execCommand("insertText", false, more)) return;
  area.setRangeText(more, area.selectionStart, area.selectionEnd, "end");
  area.dispatchEvent(new Event("input", { bubbles: true }));
}

/** @param {HTMLTextAreaElement} area @param {string} text @param {number} line */
function toLine(area, text, line) {
  const lines = text.split("\n"), start = lines.slice(0, line - 1).join("\n").length + (line > 1 ? 1 : 0);
  area.focus();
  area.setSelectionRange(start, start + (lines[line - 1] ?? "").length);
}

/** @type {Promise<any> | null} */
let schema = null;
const load = () => (schema ??= fetch(new URL("configuration.schema.json", document.baseURI.split("#")[0])).then((found) => (found.ok ? found.json() : Promise.reject(new Error(`status ${found.status}`)))));

/** @param {{text: string, at: number, onInsert: (text: string) => void}} props */
function Hints({ text, at, onInsert }) {
  const [root, setRoot] = useState(/** @type {any} */ (null));
  useEffect(() => void load().then(setRoot, () => (schema = null)), []);
  const place = useMemo(() => placeAt(text, at), [text, at]);
  const type = topValue(text, "type"), backend = topValue(text, "backend");
  if (!root) return null;
  const hint = place.key ? hintAt(root, type, backend, place.path, place.key) : null;
  const inside = hint && !place.value ? keysAt(root, type, backend, [...place.path, hint.name]) : [];
  const keys = keysAt(root, type, backend, place.path).filter((each) => each.name !== place.key && !(place.path.length === 0 && topValue(text, each.name)));
  const where = place.path.filter((part) => typeof part === "string").join(".");
  return html`<div class="hints">
    ${hint && html`<p><code>${[where, hint.name].filter(Boolean).join(".")}</code> · <${Words} text=${hint.about} /> ${hint.kinds && html`<span class="soft">Takes ${hint.kinds}.</span>`}</p>`}
    ${hint && html`<${Choices} label="Values" items=${[...hint.values, ...hint.examples]} onInsert=${place.value ? null : (/** @type {string} */ value) => onInsert(` ${value}`)} />`}
    ${inside.length > 0 && html`<p class="soft">Below it: ${inside.map((each) => each.name).join(", ")}.</p>`}
    ${keys.length > 0 && html`<details class="hint-keys"><summary>${keys.length} more keys ${where ? html`in <code>${where}</code>` : "at the top"}</summary>
      <dl>${keys.map((each) => html`<div key=${each.name}><dt><${Button} small onClick=${() => onInsert(keyText(text, at, each.name))}>${each.name}</${Button}></dt><dd><${Words} text=${each.about} /></dd></div>`)}</dl></details>`}
  </div>`;
}

/** @param {{label: string, items: string[], onInsert: ((value: string) => void) | null}} props */
function Choices({ label, items, onInsert }) {
  const shown = [...new Set(items)];
  if (shown.length === 0) return null;
  return html`<p class="choices"><span class="soft">${label}:</span> ${shown.map((value) => (onInsert
    ? html`<${Button} key=${value} small onClick=${() => onInsert(value)}>${value}</${Button}>` : html`<code key=${value}>${value}</code>`))}</p>`;
}

/** A key on a line of its own, where the cursor is or below it. @param {string} text @param {number} at @param {string} key */
function keyText(text, at, key) {
  const start = text.lastIndexOf("\n", at - 1) + 1;
  const line = text.slice(start, text.indexOf("\n", at) < 0 ? undefined : text.indexOf("\n", at));
  const indent = /^\s*/.exec(line)?.[0] ?? "";
  return line.trim() === "" ? `${key}: ` : `\n${indent}${key}: `;
}
