// Moments relative to now, kept true by one clock for the whole page.
import { ago, duration, exact, millis } from "../lib/time.js";
import { store } from "../lib/store.js";
import { html } from "./preact.js";
import { useStore } from "./use_store.js";

const EVERY = 1000;
export const clock = store(Date.now());
setInterval(() => document.visibilityState === "visible" && clock.set(Date.now()), EVERY);
document.addEventListener("visibilitychange", () => clock.set(Date.now()));

/** @param {{at: string | number | null | undefined, none?: string}} props */
export function Ago({ at, none = "–" }) {
  const now = useStore(clock);
  const moment = millis(at);
  if (Number.isNaN(moment)) return none;
  return html`<time datetime=${new Date(moment).toISOString()} title=${exact(moment)}>${ago(moment, now)}</time>`;
}

/** How long something took, or has taken until now.
 * @param {{from: string | number | null | undefined, to?: string | number | null}} props */
export function Lasted({ from, to }) {
  const now = useStore(clock);
  const began = millis(from);
  if (Number.isNaN(began)) return "–";
  const ended = millis(to);
  return html`<span title=${`from ${exact(began)}`}>${duration((Number.isNaN(ended) ? now : ended) - began)}</span>`;
}
