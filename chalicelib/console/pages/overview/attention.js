import { link } from "../../app/router.js";
import { html, useState } from "../../kit/preact.js";
import { Button } from "../../kit/button.js";
import { Status } from "../../kit/status.js";
import { Words } from "../../kit/words.js";
import { Ago } from "../../kit/time.js";
import { shortWhy } from "../../lib/run_facts.js";

const FIRST = 8; // that are shown before somebody asks for all

/** @param {{items: import("../../lib/overview.js").Item[], project: string | null}} props */
export function Attention({ items, project }) {
  const [all, setAll] = useState(false);
  return html`<ul class="attention">${(all ? items : items.slice(0, FIRST)).map((item) => html`<li key=${item.id}>
      <${Status} value=${item.state} /><a href=${hrefOf(item, project)}>${item.name}</a>
      <span class="soft small-text"><${Ago} at=${item.at} /></span><p title=${item.why}><${Words} text=${shortWhy(item.why)} /></p></li>`)}</ul>
    ${items.length > FIRST && html`<div class="attention-more"><${Button} small kind="plain" onClick=${() => setAll(!all)}>${all ? "Show fewer" : `Show all ${items.length}`}<//></div>`}`;
}

/** @param {import("../../lib/overview.js").Item} item @param {string | null} project */
const hrefOf = (item, project) => (item.what === "instances" ? (item.of ? link(project, "fleets", item.of) : link(project, "fleets")) : link(project, item.what, item.name));
