import { Button } from "./button.js";
import { html } from "./preact.js";
import { toast } from "./toast.js";

/** @param {string} text */
export async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    toast("Copied.");
  } catch {
    toast("The browser doesn't let this page copy; select the text instead.", { kind: "bad" });
  }
}

/** A piece of text as a program prints or takes it.
 * @param {{text: string, copy?: boolean, label?: string}} props */
export function Code({ text, copy, label }) {
  return html`<div class="code"><pre tabindex="0" role="region" aria-label=${label ?? "Code"}><code>${text}</code></pre>
    ${copy && html`<${Button} icon="copy" label=${`Copy ${label ? label.toLowerCase() : "this"}`} small onClick=${() => copyText(text)} />`}</div>`;
}

/** A word that can be copied: a name, an address.
 * @param {{text: string}} props */
export function Copied({ text }) {
  return html`<span class="copied"><code>${text}</code><${Button} icon="copy" label=${`Copy ${text}`} small onClick=${() => copyText(text)} /></span>`;
}
