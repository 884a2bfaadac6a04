import { html } from "./preact.js";

/** A part of a whole as a bar, with the numbers beside it.
 * @param {{value: number, of: number, label: string, text?: any}} props */
export function Meter({ value, of, label, text }) {
  const part = of > 0 ? Math.min(1, value / of) : 0;
  return html`<span class="meter"><span class="meter-bar" role="meter" aria-label=${label} aria-valuemin="0" aria-valuemax=${of} aria-valuenow=${value}>
    <span style=${{ width: `${part * 100}%` }}></span></span><span class="number">${text ?? `${value}/${of}`}</span></span>`;
}
