// Lines over time. Charts of one group share their crosshair and their range.
import { momentsOf, nearest, pathOf, scaleOf } from "../lib/plot.js";
import { store } from "../lib/store.js";
import { exact, utc } from "../lib/time.js";
import { html, useEffect, useMemo, useRef, useState } from "./preact.js";
import { useStore } from "./use_store.js";
import { useWidth } from "./use_width.js";

/**
 * @typedef {{label: string, points: import("../lib/plot.js").Point[], format?: (value: number) => string}} Line
 * @typedef {{at: number, label: string, kind?: "good" | "bad" | "warn" | "calm"}} Mark
 */

const HEIGHT = 180, LEFT = 64, TOP = 6, BOTTOM = 22; // pixels, with the room of labels
const FLOOR = HEIGHT - BOTTOM, LABEL = 80; // of the time axis: its place, and the width of a label
const NEAR = 8; // pixels between the crosshair and a mark that it reads
const DRAGGED = 4; // pixels, at least, of a range

/** Where the crosshair is. @type {ReturnType<typeof store<{group: any, time: number} | null>>} */
const crosshairs = store(/** @type {any} */ (null));
const colour = (/** @type {number} */ at) => `var(--line-${(at % 8) + 1})`;

/**
 * @param {{series: Line[], label: string, range?: [number, number] | null, onRange?: (range: [number, number] | null) => void,
 *   crosshair?: string, marks?: Mark[], max?: number, bytes?: boolean, format?: (value: number) => string}} props
 *   `crosshair`: the name of its group; `max`: of the values, if it is known, such as 100 %.
 */
export function Chart({ series, label, range = null, onRange, crosshair, marks = [], max, bytes, format = String }) {
  const { ref, width } = useWidth();
  const group = crosshair ?? ref, pointed = useStore(crosshairs);
  const plot = useMemo(() => plotOf(series, range, width, max, bytes), [series, range?.[0], range?.[1], width, max, bytes]);
  const index = pointed?.group === group ? nearest(plot.times, pointed.time) : -1;
  const point = (/** @type {number} */ place) => crosshairs.set(plot.times[place] === undefined ? null : { group, time: /** @type {number} */ (plot.times[place]) });
  const { dragged, ...pointer } = usePointer(plot, point, onRange);
  useEffect(() => () => crosshairs.set(null), [group]);

  const time = plot.times[index];
  const near = time === undefined ? [] : marks.filter((mark) => Math.abs(plot.x(mark.at) - plot.x(time)) <= NEAR).map((mark) => mark.label);
  return html`<figure class="chart"><figcaption>${label}${time !== undefined && html`<span class="legend">${[utc(time), ...near].join(" · ")}</span>`}<${Legend} series=${series} format=${format} time=${time} /></figcaption>
    <div class="chart-plot" ref=${ref} tabindex="0" role="slider" aria-label=${summary(label, series, format)} aria-valuenow=${Math.max(0, index)} aria-valuemin="0" aria-valuemax=${Math.max(0, plot.times.length - 1)}
      aria-valuetext=${time === undefined ? "Arrow keys read values" : textAt(time, near, series, format)} onKeyDown=${(/** @type {KeyboardEvent} */ event) => moved(event, plot.times.length, index, point)} ...${pointer}>
      <svg width=${width} height=${HEIGHT} aria-hidden="true"><${Lines} plot=${plot} series=${series} marks=${marks} format=${format} />
        ${time !== undefined && html`<line class="chart-cross" x1=${plot.x(time)} x2=${plot.x(time)} y1=${TOP} y2=${FLOOR} />${series.map((line, at) => {
          const value = valueOf(line, time);
          return value !== null && html`<circle key=${line.label} cx=${plot.x(time)} cy=${plot.y(value)} r="3" style=${{ fill: colour(at) }} />`;
        })}`}
        ${dragged && html`<rect class="chart-part" x=${Math.min(...dragged)} width=${Math.abs(dragged[1] - dragged[0])} y=${TOP} height=${FLOOR - TOP} />`}
      </svg></div></figure>`;
}

/** @typedef {ReturnType<typeof plotOf>} Plot */
/** Where things are. @param {Line[]} series @param {[number, number] | null} range @param {number} width @param {number | undefined} max @param {boolean | undefined} bytes */
function plotOf(series, range, width, max, bytes) {
  const all = [...new Set(series.flatMap((line) => line.points.map(([at]) => at)))].sort((a, b) => a - b);
  const [from, to] = range ?? [all[0] ?? 0, all.at(-1) ?? 0];
  const inside = (/** @type {number} */ at) => at >= from && at <= to;
  const highest = series.reduce((most, line) => line.points.reduce((high, [at, value]) => (value !== null && value > high && inside(at) ? value : high), most), 0);
  const lines = scaleOf(max ?? Math.max(highest * 1.02, 1), bytes), top = max ?? /** @type {number} */ (lines.at(-1));
  const x = (/** @type {number} */ at) => LEFT + ((width - LEFT) * (at - from)) / Math.max(1, to - from);
  return {
    x,
    y: (/** @type {number} */ value) => FLOOR - ((FLOOR - TOP) * value) / top,
    timeAt: (/** @type {number} */ place) => from + ((to - from) * (place - LEFT)) / (width - LEFT),
    width,
    values: lines.filter((value) => value <= top),
    moments: momentsOf(from, to, Math.max(1, Math.floor((width - LEFT) / LABEL)), new Date(from).getTimezoneOffset() * 60_000).filter((at) => x(at) > LEFT + 16 && x(at) < width - 16),
    times: all.filter(inside),
    // One point beyond each end, so that lines go on to the edge.
    shown: series.map((line) => line.points.filter(([at], place) => inside(at) || inside(line.points[place + 1]?.[0] ?? Number.NaN) || inside(line.points[place - 1]?.[0] ?? Number.NaN))),
  };
}

/** Everything but the crosshair: it isn't drawn again when that moves. @param {{plot: Plot, series: Line[], marks: Mark[], format: (value: number) => string}} props */
function Lines({ plot, series, marks, format }) {
  const { x, y, width } = plot;
  return useMemo(() => html`<g>
    ${plot.values.map((value) => html`<line key=${value} class="chart-grid" x1=${LEFT} x2=${width} y1=${y(value)} y2=${y(value)} /><text x=${LEFT - 8} y=${y(value) + 4} text-anchor="end">${format(value)}</text>`)}
    ${plot.moments.map((at, place) => html`<line key=${at} class="chart-grid" x1=${x(at)} x2=${x(at)} y1=${TOP} y2=${FLOOR} /><text x=${x(at)} y=${HEIGHT - 4} text-anchor="middle">${moment(at, plot.moments[place - 1])}</text>`)}
    <svg x=${LEFT} y=${TOP} width=${width - LEFT} height=${FLOOR - TOP} viewBox=${`${LEFT} ${TOP} ${width - LEFT} ${FLOOR - TOP}`}>
      ${marks.map((mark) => html`<line class="chart-mark" x1=${x(mark.at)} x2=${x(mark.at)} y1=${TOP} y2=${FLOOR} style=${{ stroke: `var(--${mark.kind ?? "calm"})` }} />`)}
      ${plot.shown.map((points, at) => html`<path key=${series[at]?.label} d=${pathOf(points, x, y)} style=${{ stroke: colour(at) }} />`)}
    </svg></g>`, [plot, marks]);
}

/** A moment of the axis: the time, with the date where that is another than before. @param {number} at @param {number} [before] */
function moment(at, before) {
  const date = new Date(at);
  const time = `${date.getHours()}:${String(date.getMinutes()).padStart(2, "0")}${date.getSeconds() ? `:${String(date.getSeconds()).padStart(2, "0")}` : ""}`;
  const other = before !== undefined && new Date(before).getDate() !== date.getDate();
  return other ? `${date.getDate()}.${date.getMonth() + 1}. ${time}` : time;
}

/** The crosshair follows the pointer; dragging chooses a range. @param {Plot} plot @param {(place: number) => void} point
 * @param {((range: [number, number]) => void) | undefined} onRange */
function usePointer(plot, point, onRange) {
  const [dragged, setDragged] = useState(/** @type {[number, number] | null} */ (null));
  const begun = useRef(/** @type {number | null} */ (null));
  const placeOf = (/** @type {PointerEvent} */ event) => {
    const { left } = /** @type {Element} */ (event.currentTarget).getBoundingClientRect();
    return Math.min(plot.width, Math.max(LEFT, event.clientX - left));
  };
  return {
    dragged,
    onPointerDown: (/** @type {PointerEvent} */ event) => {
      if (!onRange || event.button !== 0 || event.pointerType !== "mouse") return;
      begun.current = placeOf(event);
      /** @type {Element} */ (event.currentTarget).setPointerCapture(event.pointerId);
    },
    onPointerMove: (/** @type {PointerEvent} */ event) => {
      const here = placeOf(event);
      point(nearest(plot.times, plot.timeAt(here)));
      if (begun.current !== null) setDragged([begun.current, here]);
    },
    onPointerUp: (/** @type {PointerEvent} */ event) => {
      const [low = 0, high = 0] = [begun.current ?? 0, placeOf(event)].sort((a, b) => a - b);
      if (begun.current !== null && high - low >= DRAGGED) onRange?.([plot.timeAt(low), plot.timeAt(high)]);
      begun.current = null;
      setDragged(null);
    },
    onPointerLeave: () => begun.current === null && point(-1),
  };
}

/** Arrow keys move the crosshair from value to value. @param {KeyboardEvent} event @param {number} count @param {number} index @param {(place: number) => void} point */
function moved(event, count, index, point) {
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (!step || count === 0) return;
  event.preventDefault();
  point(index < 0 ? count - 1 : Math.max(0, Math.min(count - 1, index + step)));
}

/** @param {number} time @param {string[]} near @param {Line[]} series @param {(value: number) => string} format */
function textAt(time, near, series, format) {
  const values = series.map((line) => [line.label, valueOf(line, time)]).filter(([, value]) => value !== null);
  return [exact(time), ...values.map(([name, value]) => `${name}: ${format(/** @type {number} */ (value))}`), ...near].join(", ");
}

/** Its value at a moment; without one the latest. @param {Line} line @param {number} [time] */
const valueOf = (line, time) => (time === undefined ? latest(line) : line.points.find(([at]) => at === time)?.[1] ?? null);

/** @param {string} label @param {Line[]} series @param {(value: number) => string} format */
function summary(label, series, format) {
  const now = series.map((line) => [line.label, latest(line)]).filter(([, value]) => value !== null);
  return `${label}. ${now.map(([name, value]) => `${name}: ${format(/** @type {number} */ (value))}`).join(", ") || "No values."}`;
}

/** @param {Line} line */
const latest = (line) => line.points.findLast(([, value]) => value !== null)?.[1] ?? null;

/** @param {{series: Line[], format: (value: number) => string, time?: number}} props */
function Legend({ series, format, time }) {
  return html`<span class="legend">${series.map((line, at) => {
    const value = valueOf(line, time);
    return html`<span key=${line.label} class="legend-item"><span class="swatch" style=${{ background: colour(at) }}></span>${line.label}
      ${value !== null && html`<b class="number">${(line.format ?? format)(value)}</b>`}</span>`;
  })}</span>`;
}
