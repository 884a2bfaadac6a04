import { money, rate } from "../lib/money.js";
import { html } from "./preact.js";

/** Dollars, in all or an hour; a dash for nothing known.
 * @param {{usd: number | null | undefined, hourly?: boolean}} props */
export function Money({ usd, hourly }) {
  if (usd === null || usd === undefined) return html`<span class="soft">–</span>`;
  return html`<span class="number">${hourly ? rate(usd) : money(usd)}</span>`;
}
