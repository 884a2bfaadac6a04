import { Dialog } from "../kit/dialog.js";
import { CheckField } from "../kit/fields.js";
import { html } from "../kit/preact.js";
import { useStore } from "../kit/use_store.js";
import { keysOn, listed, setKeys } from "./keys.js";

const IN_TABLES = [["j k", "Next row, row before"], ["Enter", "Open the row"], ["x", "Select the row"], ["Ctrl K", "Go to anything"], ["Esc", "Close"]];

/** The keys of this page. @param {{onClose: () => void}} props */
export function Keys({ onClose }) {
  const on = useStore(keysOn);
  const known = new Set(["j", "k"]);
  const rows = [...listed().filter((each) => !known.has(each.keys)).map((each) => [each.keys, each.text]), ...IN_TABLES];
  return html`<${Dialog} title="Keys" onClose=${onClose}>
    <dl class="keys">${rows.map(([keys, text]) => html`<div key=${keys}><dt>${keys.split(" ").map((key) => html`<kbd>${key}</kbd> `)}</dt><dd>${text}</dd></div>`)}</dl>
    <${CheckField} label="Keys without Ctrl do something" checked=${on} onInput=${setKeys} hint="Switch them off if they get in the way of other software." />
  </${Dialog}>`;
}
