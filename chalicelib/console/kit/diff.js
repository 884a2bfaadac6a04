// Two texts, line by line: what goes and what comes, by a sign and a word, never by a colour alone.
import { changesOnly, lineDiff } from "../lib/diff.js";
import { html, useMemo } from "./preact.js";

const SIGNS = { same: " ", gone: "−", new: "+" }, WORDS = { same: "", gone: "removed: ", new: "added: " };

/** @param {{before: string, after: string, label: string}} props */
export function Diff({ before, after, label }) {
  const lines = useMemo(() => changesOnly(lineDiff(before, after)), [before, after]);
  if (lines.length === 0 || lines.every((line) => line === null)) return html`<p class="soft">No line differs.</p>`;
  return html`<div class="code diff"><pre tabindex="0" role="region" aria-label=${label}>${lines.map((line, number) => (line === null
    ? html`<span key=${number} class="diff-gap">⋯${"\n"}</span>`
    : html`<span key=${number} class="diff-${line.kind}"><span aria-hidden="true">${SIGNS[line.kind]} </span><span class="unseen">${WORDS[line.kind]}</span>${line.text}${"\n"}</span>`))}</pre></div>`;
}
