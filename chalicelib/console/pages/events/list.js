// Events as a list, each with links to what it is about, and to what else happened to that.
import { link } from "../../app/router.js";
import { Empty } from "../../kit/empty.js";
import { Icon } from "../../kit/icon.js";
import { html } from "../../kit/preact.js";
import { Words } from "../../kit/words.js";
import { Ago } from "../../kit/time.js";
import { DAY, afterwards, instantText } from "../../lib/past.js";
import { markKind } from "../../lib/timeline.js";

/** @typedef {import("../../types").Event} Event */

const LOOKS = /** @type {Record<string, string>} */ ({ bad: "cross", warn: "warning", good: "check", calm: "dot" });

/** @param {{events: Event[], project: string | null, empty?: any, current?: string}} props `current`: the id of one to point at */
export function Events({ events, project, empty, current }) {
  if (events.length === 0) return empty ?? html`<${Empty} title="Nothing has happened yet." />`;
  return html`<ol class="events">${events.map((event) => {
    const kind = markKind(event) ?? "calm";
    return html`<li key=${event.id} class=${`event ${kind}${event.id === current ? " current" : ""}`}>
      <span class="event-at">${then(event, project)}</span>
      <span class="event-icon"><${Icon} name=${LOOKS[kind] ?? "dot"} /></span>
      <span class="event-what">${event.user && html`<a href=${link(project, "events", { user: event.user })} title=${event.token ? `with the token ${event.token}` : undefined}><b>${event.user}</b></a>`}
        ${event.targets.slice(0, 3).map((target) => html`<${Target} key=${target.id} target=${target} project=${event.project ?? project} />`)}
        <span class="event-text"><${What} event=${event} /></span></span>
    </li>`;
  })}</ol>`;
}

// Of the last day, a date leads to how things were then.
/** @param {Event} event @param {string | null} project */
function then(event, project) {
  const ago = html`<${Ago} at=${event.at} />`;
  const where = event.project ?? project;
  const recent = Date.now() - Date.parse(event.at) < DAY;
  return where && recent ? html`<a href=${link(where, "past", { at: instantText(afterwards(event.at)) })}>${ago}</a>` : ago;
}

/** @param {{event: Event}} props */
function What({ event: { type, before, after, text } }) {
  const moved = `${before} → ${after}`;
  if (type !== "status" || !text.startsWith(moved)) return html`<${Words} text=${text} />`;
  return html`${before}<span class="unseen"> to </span><${Icon} name="right" />${after}<${Words} text=${text.slice(moved.length)} />`;
}

/** @param {{target: Event["targets"][number], project: string | null}} props */
function Target({ target, project }) {
  const href = project && hrefOf(target, project);
  const text = html`<span class="soft">${target.type}</span> ${target.name}`;
  return html`<span class="target">${href ? html`<a href=${href}>${text}</a>` : text}</span>`;
}

/** Where something is shown; of what has no page, its own events. @param {Event["targets"][number]} target @param {string} project */
function hrefOf({ type, name, id }, project) {
  if (type === "run") return link(project, "runs", name);
  if (type === "job") return link(project, "runs", name.replace(/-\d+-\d+$/, ""), { tab: "logs", job: id });
  if (type === "fleet") return link(project, "fleets", name);
  return link(project, "events", { target: `${type}/${name}` });
}
