import { changesOnly } from "../lib/diff.js";
import { html } from "./preact.js";

/** @type {Record<import("../lib/diff.js").DiffLine["kind"], [string, string]>} */
const SIGNS = { same: ["", ""], gone: ["−", "removed"], new: ["+", "added"] };

/** What differs between two texts, with a few lines around it.
 * @param {{lines: import("../lib/diff.js").DiffLine[], label: string}} props */
export function Diff({ lines, label }) {
  if (lines.every((line) => line.kind === "same")) return html`<p>They are the same.</p>`;
  return html`<div class="diff" tabindex="0" role="region" aria-label=${label}><table><tbody>${changesOnly(lines).map((line, index) => line === null
    ? html`<tr key=${index} class="skipped"><td colspan="4">…</td></tr>`
    : html`<tr key=${index} class=${line.kind}><td class="diff-at">${line.before}</td><td class="diff-at">${line.after}</td>
      <td aria-hidden="true">${SIGNS[line.kind][0]}</td><td><span class="unseen">${SIGNS[line.kind][1]} </span>${line.text}</td></tr>`)}</tbody></table></div>`;
}
