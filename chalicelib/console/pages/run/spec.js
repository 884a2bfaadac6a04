import { Code } from "../../kit/code.js";
import { html } from "../../kit/preact.js";
import { specText } from "../../lib/yaml_text.js";

/** @param {{run: import("../../types").Run}} props */
export function Spec({ run }) {
  return html`<div class="spec"><p class="soft">What it was submitted with, without what is so by default.</p>
    <${Code} text=${specText(run.spec)} copy label="Configuration" /></div>`;
}
