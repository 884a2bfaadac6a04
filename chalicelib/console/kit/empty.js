import { html } from "./preact.js";

/** What a list without items shows: why it is empty, and what to do next.
 * @param {{title: string, next?: any, children?: any}} props */
export function Empty({ title, next, children }) {
  return html`<div class="empty"><p class="empty-title">${title}</p>${next && html`<div class="empty-next">${next}</div>`}${children}</div>`;
}

/** @param {{text?: string}} props */
export function Loading({ text = "Loading …" }) {
  return html`<p class="loading" role="status">${text}</p>`;
}
