// Icons as lines in a box of 16 by 16, drawn in the colour of the text. They say nothing that isn't also written.
import { html } from "./preact.js";

/** @type {Record<string, string>} */
const PATHS = {
  overview: "M2.5 2.5h4.5v5h-4.5zM9 2.5h4.5v3H9zM9 7.5h4.5v6H9zM2.5 9.5h4.5v4h-4.5z",
  runs: "M4 3l8.5 5L4 13z",
  services: "M8 1.8a6.2 6.2 0 1 0 0 12.4A6.2 6.2 0 0 0 8 1.8zM1.8 8h12.4M8 1.8c4.2 4.2 4.2 8.2 0 12.4M8 1.8c-4.2 4.2-4.2 8.2 0 12.4",
  offers: "M2.5 8.2V2.5h5.7l5.3 5.3-5.7 5.7zM5.4 5.4h.01",
  fleets: "M2.5 3h11v3.8h-11zM2.5 9.2h11V13h-11zM5 4.9h.01M5 11.1h.01",
  volumes: "M2.5 4c0-1.1 2.4-1.9 5.5-1.9s5.5.8 5.5 1.9-2.4 1.9-5.5 1.9S2.5 5.1 2.5 4zM2.5 4v8c0 1.1 2.4 1.9 5.5 1.9s5.5-.8 5.5-1.9V4M2.5 8c0 1.1 2.4 1.9 5.5 1.9s5.5-.8 5.5-1.9",
  gateways: "M8 2v12M3 5h10l-2-2.5M13 11H3l2 2.5",
  events: "M2.5 3.5h1M6 3.5h7.5M2.5 8h1M6 8h7.5M2.5 12.5h1M6 12.5h7.5",
  costs: "M2.5 13.5h11M4 13.5V9M8 13.5V3M12 13.5V6",
  launch: "M8 3v10M3 8h10",
  settings: "M2.5 4.5h6M11.5 4.5h2M8.5 3v3M2.5 11.5h2M7.5 11.5h6M4.5 10v3",
  users: "M8 7.5a2.7 2.7 0 1 0 0-5.4 2.7 2.7 0 0 0 0 5.4zM2.7 14c.5-3 2.5-4.5 5.3-4.5s4.8 1.5 5.3 4.5",
  search: "M7 2.5a4.5 4.5 0 1 0 0 9 4.5 4.5 0 0 0 0-9zM10.3 10.3l3.4 3.4",
  menu: "M2 4h12M2 8h12M2 12h12",
  close: "M3.5 3.5l9 9M12.5 3.5l-9 9",
  down: "M4 6l4 4 4-4",
  right: "M6 4l4 4-4 4",
  left: "M10 4L6 8l4 4",
  up: "M4 10l4-4 4 4",
  copy: "M5.5 5.5h8v8h-8zM10.5 5.5v-3h-8v8h3",
  check: "M3 8.5l3.5 3.5L13 4.5",
  cross: "M4 4l8 8M12 4l-8 8",
  dot: "M8 5.5a2.5 2.5 0 1 0 0 5 2.5 2.5 0 0 0 0-5z",
  ring: "M8 3.5a4.5 4.5 0 1 0 0 9 4.5 4.5 0 0 0 0-9z",
  clock: "M8 2.2a5.8 5.8 0 1 0 0 11.6A5.8 5.8 0 0 0 8 2.2zM8 4.8V8l2.2 1.5",
  stop: "M4 4h8v8H4z",
  warning: "M8 2.2L14.5 13.5h-13zM8 6.5v3M8 11.6h.01",
  info: "M8 1.8a6.2 6.2 0 1 0 0 12.4A6.2 6.2 0 0 0 8 1.8zM8 7.5v3.5M8 5h.01",
  sun: "M8 5a3 3 0 1 0 0 6 3 3 0 0 0 0-6zM8 1v1.5M8 13.5V15M1 8h1.5M13.5 8H15M3 3l1.1 1.1M11.9 11.9L13 13M3 13l1.1-1.1M11.9 4.1L13 3",
  moon: "M13.5 9.5A6 6 0 0 1 6.5 2.5a5.8 5.8 0 1 0 7 7z",
  screen: "M2 3h12v8H2zM6 14h4M8 11v3",
  external: "M9 2.5h4.5V7M13.5 2.5L7.5 8.5M11.5 9.5v4h-9v-9h4",
  download: "M8 2v8M4.5 7L8 10.5 11.5 7M2.5 13.5h11",
  trash: "M3 4.5h10M6 4.5v-2h4v2M4.5 4.5l.5 9h6l.5-9M7 7v4M9 7v4",
  more: "M3.5 8h.01M8 8h.01M12.5 8h.01",
  key: "M10.2 2.5a3.3 3.3 0 1 0 0 6.6 3.3 3.3 0 0 0 0-6.6zM7.8 8.2L2.5 13.5M4.5 11.5l1.7 1.7",
  out: "M9.5 2.5h-6v11h6M6.5 8h7.5M11.5 5.5L14 8l-2.5 2.5",
};

/** @param {{name: string}} props */
export function Icon({ name }) {
  return html`<svg class="icon" viewBox="0 0 16 16" width="16" height="16" fill="none" stroke="currentColor" stroke-width="1.5"
    stroke-linecap="round" stroke-linejoin="round" aria-hidden="true"><path d=${PATHS[name] ?? PATHS.dot} /></svg>`;
}
