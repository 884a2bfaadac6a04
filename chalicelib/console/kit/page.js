// The frame of a page: its one heading, what can be done there, and its parts.
import { store } from "../lib/store.js";
import { html, useEffect } from "./preact.js";
import { useStore } from "./use_store.js";

/** What stands before the window's title. */
export const titleMark = store("");

/** @param {{title: any, name?: string, actions?: any, lead?: any, back?: {href: string, text: string}, children?: any}} props
 *  `name`: for the window's title, where `title` is more than a text. */
export function Page({ title, name, actions, lead, back, children }) {
  const mark = useStore(titleMark);
  useEffect(() => {
    document.title = `${mark}${name ?? title} · dstack`;
  }, [mark, name, title]);
  return html`<div class="page">
    <header class="page-head">
      <div class="page-title">
        ${back && html`<a class="back" href=${back.href}>${back.text}</a><span class="back-mark" aria-hidden="true">/</span>`}
        <h1 tabindex="-1">${title}</h1>
      </div>
      ${actions && html`<div class="actions">${actions}</div>`}
    </header>
    ${lead && html`<p class="lead">${lead}</p>`}
    ${children}
  </div>`;
}

/** @param {{title: any, actions?: any, note?: any, children?: any, flush?: boolean}} props */
export function Section({ title, actions, note, children, flush }) {
  return html`<section class=${flush ? "section flush" : "section"}>
    <header class="section-head"><h2>${title}</h2>${actions && html`<div class="actions">${actions}</div>`}</header>
    ${note && html`<p class="note">${note}</p>`}
    ${children}
  </section>`;
}

/** Names and values, in columns as far as there is room.
 * @param {{items: [string, any][]}} props */
export function Facts({ items }) {
  const shown = items.filter(([, value]) => value !== null && value !== undefined && value !== "");
  return html`<dl class="facts">${shown.map(([name, value]) => html`<div key=${name}><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>`;
}
