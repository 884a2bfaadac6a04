// Short messages about what just happened. They are read out, and go by themselves unless something failed.
import { store } from "../lib/store.js";
import { Button } from "./button.js";
import { html } from "./preact.js";
import { useStore } from "./use_store.js";

/** @typedef {{id: number, text: string, kind: "good" | "bad", hint?: string | null}} Toast */
const toasts = store(/** @type {Toast[]} */ ([]));
const SHOWN = 5000; // milliseconds
let last = 0;

/** @param {string} text @param {{kind?: "good" | "bad", hint?: string | null}} [options] */
export function toast(text, { kind = "good", hint } = {}) {
  const id = ++last;
  toasts.set([...toasts.get().slice(-3), { id, text, kind, hint }]);
  if (kind !== "bad") setTimeout(() => close(id), SHOWN);
}

/** Says what a failed call was refused for.
 * @param {any} error */
export const toastFailure = (error) => toast(error.detail ?? String(error.message ?? error), { kind: "bad", hint: error.hint });

/** @param {number} id */
const close = (id) => toasts.set(toasts.get().filter((each) => each.id !== id));

export function Toasts() {
  const shown = useStore(toasts);
  return html`<div class="toasts" role="status" aria-live="polite">
    ${shown.map((each) => html`<div key=${each.id} class="toast ${each.kind}">
      <div><p>${each.text}</p>${each.hint && html`<p class="soft">${each.hint}</p>`}</div>
      <${Button} icon="close" label="Close this message" small kind="plain" onClick=${() => close(each.id)} />
    </div>`)}
  </div>`;
}
