import { Icon } from "./icon.js";
import { html } from "./preact.js";

/** Something to know about what is below.
 * @param {{kind?: "info" | "warn" | "bad" | "good", children?: any, actions?: any}} props */
export function Notice({ kind = "info", children, actions }) {
  const icon = { info: "info", warn: "warning", bad: "warning", good: "check" }[kind];
  return html`<div class="notice ${kind}" role=${kind === "bad" ? "alert" : undefined}>
    <${Icon} name=${icon} /><div class="notice-text">${children}</div>${actions}
  </div>`;
}

/** What the API refused, or what failed on the way there.
 * @param {{error: any, retry?: () => void}} props */
export function Failed({ error, retry }) {
  if (!error) return null;
  const parts = /** @type {{detail: string, pointer?: string}[]} */ (error.errors ?? []);
  return html`<${Notice} kind="bad" actions=${retry && html`<button type="button" class="button small" onClick=${retry}>Try again</button>`}>
    <p>${error.detail ?? error.message}</p>
    ${parts.length > 1 && html`<ul>${parts.map((part) => html`<li>${part.detail}</li>`)}</ul>`}
    ${error.hint && html`<p>${error.hint}</p>`}
  </${Notice}>`;
}
