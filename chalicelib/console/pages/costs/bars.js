// Bars over time: what each name cost in each step, one above the other, with idle time hatched. The table below has the numbers.
import { html, useEffect, useRef, useState } from "../../kit/preact.js";
import { money } from "../../lib/money.js";
import { charted, labelled, scaleOf, stepsOf, stepText, titleOf } from "../../lib/costs.js";
import { exact } from "../../lib/time.js";

const HEIGHT = 240, LEFT = 64, BOTTOM = 24, TOP = 10;
const ROOM = HEIGHT - BOTTOM - TOP;
const LABEL = 72; // pixels that the name of a day takes
const colour = (/** @type {number} */ index) => (index < 0 ? "var(--soft)" : `var(--line-${index + 1})`);

/** @param {{costs: import("../../types").Costs, now: number}} props */
export function Bars({ costs, now }) {
  const { ref, width } = useWidth();
  const steps = stepsOf(costs, now), budget = costs.step === "day" ? (costs.budget_usd_per_day ?? 0) : 0;
  const lines = scaleOf(Math.max(budget, ...steps.map((step) => step.usd)));
  const most = lines[lines.length - 1], slot = (width - LEFT) / Math.max(1, steps.length);
  const y = (/** @type {number} */ usd) => TOP + ROOM * (1 - usd / most);
  const label = labelled(steps.length, Math.max(2, Math.floor((width - LEFT) / LABEL)));
  const total = `${money(costs.usd)} in ${steps.length} ${costs.step}s, of which ${money(costs.idle_usd)} idle`;
  return html`<figure class="chart cost-chart">
    <figcaption>${costs.step === "day" ? "Cost per day" : "Cost per hour"}<${Legend} costs=${costs} budget=${budget} /></figcaption>
    <div ref=${ref}><svg width=${width} height=${HEIGHT} role="img" aria-label=${`Costs: ${total}.`}>
      <defs><pattern id="idle" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
        <rect width="6" height="6" class="idle-ground" /><rect width="2.5" height="6" class="idle-line" /></pattern></defs>
      ${lines.map((usd) => html`<g key=${usd}><line x1=${LEFT} x2=${width} y1=${y(usd)} y2=${y(usd)} class="cost-grid" />
        <text x=${LEFT - 8} y=${y(usd) + 4} text-anchor="end">${short(usd)}</text></g>`)}
      ${steps.map((step, at) => html`<${Bar} key=${step.at} step=${step} x=${LEFT + at * slot} slot=${slot} y=${y} of=${costs.step} />`)}
      ${steps.map((step, at) => label(at) && html`<text key=${step.at} y=${HEIGHT - 6} ...${placed(LEFT + (at + 0.5) * slot, width)}>${stepText(step.at, costs.step)}</text>`)}
      ${budget > 0 && html`<line x1=${LEFT} x2=${width} y1=${y(budget)} y2=${y(budget)} class="cost-budget" />`}
    </svg></div></figure>`;
}

/** A label below its bar; at the edge it ends there. @param {number} x @param {number} width */
const placed = (x, width) => (x + LABEL / 2 > width ? { x: width, "text-anchor": "end" } : { x, "text-anchor": "middle" });

/** The width of an element, as it changes. */
function useWidth() {
  const ref = useRef(/** @type {any} */ (null));
  const [width, setWidth] = useState(640);
  useEffect(() => {
    const watched = new ResizeObserver(() => setWidth(Math.max(200, ref.current?.clientWidth ?? 0)));
    watched.observe(ref.current);
    return () => watched.disconnect();
  }, []);
  return { ref, width };
}

/** @param {{step: import("../../lib/costs.js").Step, x: number, slot: number, y: (usd: number) => number, of: "day" | "hour"}} props */
function Bar({ step, x, slot, y, of }) {
  const width = Math.max(1, Math.min(48, slot * 0.7)), left = x + (slot - width) / 2;
  let below = 0;
  const parts = step.parts.map((part) => {
    const busy = part.usd - part.idle, from = below;
    below += part.usd;
    return html`<g key=${part.name} style=${{ color: colour(part.index) }}>
      ${busy > 0 && html`<rect x=${left} width=${width} y=${y(from + busy)} height=${y(from) - y(from + busy)} fill="currentColor" />`}
      ${part.idle > 0 && html`<rect x=${left} width=${width} y=${y(below)} height=${y(from + busy) - y(below)} fill="url(#idle)" stroke="currentColor" stroke-width="1" />`}</g>`;
  });
  const told = step.parts.map((part) => `${part.name}: ${money(part.usd)}${part.idle > 0 && part.idle < part.usd ? ` (${money(part.idle)} idle)` : ""}`);
  return html`<g><title>${[`${of === "day" ? stepText(step.at, "day") : exact(step.at)}: ${money(step.usd)}`, ...told].join("\n")}</title>
    <rect x=${x} width=${slot} y=${TOP} height=${ROOM} fill="transparent" class="cost-slot" />${parts}</g>`;
}

/** @param {{costs: import("../../types").Costs, budget: number}} props */
function Legend({ costs, budget }) {
  let index = 0;
  const series = charted(costs).filter(({ name }) => !(name === null && costs.by === "user"));
  return html`<span class="legend">
    ${series.map(({ name }) => html`<span key=${name} class="legend-item"><span class="swatch cost-swatch" style=${{ background: colour(index++) }}></span>${titleOf(name, costs.by)}</span>`)}
    <span class="legend-item"><svg class="idle-swatch" width="12" height="12" aria-hidden="true"><rect width="12" height="12" fill="url(#idle)" stroke="currentColor" /></svg>idle</span>
    ${budget > 0 && html`<span class="legend-item"><span class="swatch budget-swatch"></span>quota ${money(budget)} a day</span>`}</span>`;
}

/** @param {number} usd */
const short = (usd) => (usd >= 1000 ? `$${Number((usd / 1000).toPrecision(3))}k` : `$${Number(usd.toPrecision(3))}`);
