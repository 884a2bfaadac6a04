import { html } from "./preact.js";

/** Parts of a page, each with its own address.
 * @param {{label: string, tabs: {key: string, title: any, href: string, count?: number}[], current: string}} props */
export function Tabs({ label, tabs, current }) {
  return html`<nav class="tabs" aria-label=${label}>${tabs.map((tab) => html`<a key=${tab.key} href=${tab.href}
    aria-current=${tab.key === current ? "page" : undefined}>${tab.title}${tab.count !== undefined && html`<span class="count">${tab.count}</span>`}</a>`)}</nav>`;
}
