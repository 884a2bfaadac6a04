// The slider over the last day, its marks, and the banner that says that what is shown is past.
import { listen } from "../../app/keys.js";
import { Button } from "../../kit/button.js";
import { Icon } from "../../kit/icon.js";
import { html, useEffect, useRef } from "../../kit/preact.js";
import { afterwards, along, daySteps, nextMark, spoken, stepAt, stepFor } from "../../lib/past.js";
import { ago, exact, utc } from "../../lib/time.js";

/** @typedef {import("../../types").Mark} Mark */

/** @type {Record<Mark["kind"], string>} */
export const MARKS = { failure: "bad", interruption: "warn", deployment: "calm", scaling: "good" };

/** @param {{at: number, now: number, marks: Mark[], state: import("../../types").Past | undefined, onAt: (at: number) => void}} props */
export function Travel({ at, now, marks, state, onAt }) {
  const steps = daySteps(now);
  const step = stepAt(steps, at);
  const to = (/** @type {number} */ index) => onAt(/** @type {number} */ (steps[index]));
  const jump = (/** @type {1 | -1} */ by) => {
    const mark = nextMark(marks, at, by);
    if (mark) onAt(afterwards(mark.at));
  };
  const latest = useRef(jump);
  latest.current = jump;
  useEffect(() => listen([
    { keys: "[", text: "Back to the mark before", act: () => latest.current(-1) },
    { keys: "]", text: "On to the next mark", act: () => latest.current(1) },
  ]), []);
  const onKeyDown = (/** @type {KeyboardEvent} */ event) => {
    const next = stepFor(event.key, step, steps.length - 1);
    if (next === null) return;
    event.preventDefault();
    to(next);
  };
  return html`<div class="travel">
    <${Button} icon="left" label="The mark before" onClick=${() => jump(-1)} disabled=${!nextMark(marks, at, -1)} />
    <div class="travel-track">
      <div class="travel-marks" aria-hidden="true">${marks.map((mark, index) => html`<span key=${index} class=${`travel-mark ${MARKS[mark.kind]}`} title=${`${utc(Date.parse(mark.at))}: ${mark.target.name}: ${mark.text}`}
        style=${{ left: `${along(Date.parse(mark.at), now)}%` }}></span>`)}</div>
      <input type="range" min="0" max=${steps.length - 1} step="1" value=${step} aria-label="Moment of the last day" aria-valuetext=${spoken(at, state)}
        onInput=${(/** @type {any} */ event) => to(Number(event.target.value))} onKeyDown=${onKeyDown} />
      <div class="travel-ends" aria-hidden="true"><span>24 h ago</span><span>12 h ago</span><span>now</span></div>
    </div>
    <${Button} icon="right" label="The next mark" onClick=${() => jump(1)} disabled=${!nextMark(marks, at, 1)} />
  </div>`;
}

/** @param {{at: number, now: number, present: string, final?: boolean}} props `present`: the address of what is now */
export function PastBanner({ at, now, present, final }) {
  return html`<div class="past-banner"><${Icon} name="clock" /><p><b title=${exact(at)}>${utc(at)}</b>, ${ago(at, now)}. This is how it was; nothing can be changed here.${final === false ? " It is so new that it may still change a little." : ""}</p>
    <${Button} href=${present}>Now<//></div>`;
}
