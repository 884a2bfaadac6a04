// Versions of a service: which replicas run which, what changed between them, and the way back.
import { html } from "../../kit/preact.js";
import { Meter } from "../../kit/meter.js";
import { Notice } from "../../kit/notice.js";
import { Section } from "../../kit/page.js";
import { isRolling, rollout } from "../../lib/services.js";
import { counted } from "../../lib/money.js";

/** @typedef {import("../../types").Service} Service */

/** @param {{project: string, service: Service, reload: () => Promise<void>}} props */
export function Rollout({ service }) {
  const parts = rollout(service);
  return html`<${Section} title="Replicas by revision">
    ${isRolling(service) ? html`<${Notice}><p>Its replicas are being replaced, one after the other. At no time do fewer get requests than are asked for.</p></${Notice}>`
      : html`<p class="soft">All replicas run revision ${service.revision}.</p>`}
    <ul class="revisions plain">${parts.map((part) => html`<li key=${part.revision}><b>Revision ${part.revision}${part.current ? ", the latest" : ""}</b>
      <${Meter} value=${part.ready} of=${Math.max(part.total, 1)} label=${`Ready replicas of revision ${part.revision}`} text=${`${part.ready} of ${part.total} ready`} />
      ${part.draining > 0 && html`<span class="soft">${counted(part.draining, "replica")} finish${part.draining === 1 ? "es" : ""} what is under way</span>`}</li>`)}</ul>
  </${Section}>`;
}
