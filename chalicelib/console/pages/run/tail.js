import { html } from "../../kit/preact.js";
import { spans } from "../../lib/ansi.js";

const TAIL = 18; // lines
const LONGEST = 2000; // characters of a line

/** The end of a log. @param {{lines: import("../../lib/log_lines.js").LogLines}} props */
export function TailLines({ lines }) {
  return html`<div class="log-tail" tabindex="0" role="region" aria-label="End of the log">${lines.length === 0 ? html`<p class="soft">Nothing was written yet.</p>` :
    lines.window(lines.length - TAIL, lines.length).map((line) => html`<div class="log-text" key=${line.number} dir="auto">${spans(line.raw, line.style, LONGEST).map(({ text, classes }, index) => html`<span key=${index} class=${classes}>${text}</span>`)}${"\n"}</div>`)}
  </div>`;
}
