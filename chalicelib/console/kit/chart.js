// Lines over time. Charts of one group share their crosshair and their range. The library is loaded with the first one.
import { exact } from "../lib/time.js";
import { script } from "../lib/script.js";
import { usePart } from "./lazy.js";
import { html, useEffect, useRef, useState } from "./preact.js";

/**
 * @typedef {{label: string, points: [number, number | null][], format?: (value: number) => string}} Line points by milliseconds
 * @typedef {{at: number, label: string, kind?: "good" | "bad" | "warn" | "calm"}} Mark
 */

const LINES = ["--line-1", "--line-2", "--line-3", "--line-4", "--line-5", "--line-6", "--line-7", "--line-8"];
const HEIGHT = 180;
const NEAR = 8; // pixels between the cursor and a mark that it reads
const fetched = script(() => import("uplot"));
const load = () => known().then(fetched).then((module) => /** @type {any} */ (module.default));

// The library formats numbers in the browser's language as it is loaded, which fails of one that isn't a language: a
// browser that was started with the locale "C" says "en-US@posix".
async function known() {
  try {
    Intl.NumberFormat(navigator.language);
  } catch {
    Object.defineProperty(navigator, "language", { value: "en-US" });
  }
}

/**
 * @param {{series: Line[], label: string, range?: [number, number] | null, onRange?: (range: [number, number] | null) => void,
 *   crosshair?: string, marks?: Mark[], height?: number, max?: number, format?: (value: number) => string}} props
 *   `crosshair`: the name of its group; `max`: of the values, if it is known, such as 100 %.
 */
export function Chart({ series, label, range = null, onRange, crosshair, marks = [], height = HEIGHT, max, format = String }) {
  const ref = useRef(/** @type {any} */ (null));
  const state = useRef(/** @type {any} */ ({}));
  const [at, setAt] = useState(/** @type {Cursor} */ (null));
  const { part: library, failure } = usePart(load);
  state.current.given = { range, onRange, marks, max, format, setAt };
  const shape = JSON.stringify([series.map((each) => each.label), crosshair, height]);
  useEffect(() => {
    if (!library) return;
    const plot = new library(options(ref.current, series, state, crosshair, height), columns(series), ref.current);
    state.current.plot = plot;
    const watched = new ResizeObserver(() => ref.current && plot.setSize({ width: ref.current.clientWidth, height }));
    watched.observe(ref.current);
    const theme = new MutationObserver(() => plot.redraw(false));
    theme.observe(document.documentElement, { attributeFilter: ["data-theme"] });
    return () => {
      watched.disconnect();
      theme.disconnect();
      plot.destroy();
      state.current.plot = null;
    };
  }, [shape, library]);
  useEffect(() => {
    state.current.plot?.setData(columns(series));
  }, [series]);
  useEffect(() => {
    const plot = state.current.plot;
    if (plot) plot.setData(plot.data);
  }, [range?.[0], range?.[1], marks]);
  const read = at && textAt(at, series, format);
  return html`<figure class="chart"><figcaption>${label}${at && html`<span class="legend">${[exact(at.time), ...at.marks].join(" · ")}</span>`}<${Legend} series=${series} format=${format} time=${at?.time} /></figcaption>
    ${failure}<div class="chart-plot" ref=${ref} tabindex="0" role="slider" aria-label=${summary(label, series, format)} aria-valuenow=${at?.index ?? 0} aria-valuemin="0" aria-valuemax=${at?.last ?? 0}
      aria-valuetext=${read ?? "Arrow keys read values"} onKeyDown=${(/** @type {KeyboardEvent} */ event) => moved(event, state.current.plot)}></div></figure>`;
}

/** What the crosshair is on: the moment of a value, by its place among all, and the marks beside it.
 * @typedef {{time: number, index: number, last: number, marks: string[]} | null} Cursor */

/** @param {any} plot @param {Mark[]} marks @returns {Cursor} */
function cursorOf(plot, marks) {
  const { idx: index, left } = plot.cursor, times = plot.data[0];
  if (index === null || index === undefined || left < 0) return null;
  const near = marks.filter((mark) => Math.abs(plot.valToPos(mark.at / 1000, "x") - left) <= NEAR);
  return { time: times[index] * 1000, index, last: times.length - 1, marks: near.map((mark) => mark.label) };
}

/** Arrow keys move the crosshair from value to value. @param {KeyboardEvent} event @param {any} plot */
function moved(event, plot) {
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  const times = plot?.data[0] ?? [];
  if (!step || times.length === 0) return;
  event.preventDefault();
  const { min, max } = plot.scales.x;
  const shown = times.flatMap((/** @type {number} */ time, /** @type {number} */ place) => (time >= min && time <= max ? [place] : []));
  const before = plot.cursor.left < 0 ? null : plot.cursor.idx;
  const next = before === null || before === undefined ? shown.at(-1) : Math.max(shown[0], Math.min(shown.at(-1), before + step));
  if (next !== undefined) plot.setCursor({ left: plot.valToPos(times[next], "x"), top: 0 });
}

/** @param {NonNullable<Cursor>} at @param {Line[]} series @param {(value: number) => string} format */
function textAt({ time, marks }, series, format) {
  const values = series.map((line) => [line.label, valueOf(line, time)]).filter(([, value]) => value !== null);
  return [exact(time), ...values.map(([name, value]) => `${name}: ${format(/** @type {number} */ (value))}`), ...marks].join(", ");
}

/** Its value at a moment; without one the latest. @param {Line} line @param {number} [time] */
const valueOf = (line, time) => (time === undefined ? latest(line) : line.points.find(([at]) => Math.abs(at - time) < 1)?.[1] ?? null);

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
    return html`<span key=${line.label} class="legend-item"><span class="swatch" style=${{ background: `var(${LINES[at % LINES.length]})` }}></span>${line.label}
      ${value !== null && html`<b class="number">${(line.format ?? format)(value)}</b>`}</span>`;
  })}</span>`;
}

/** Series as the library takes them: one list of moments in seconds, and a list of values for each.
 * @param {Line[]} series */
function columns(series) {
  const times = [...new Set(series.flatMap((line) => line.points.map(([at]) => at)))].sort((a, b) => a - b);
  const values = series.map((line) => {
    const by = new Map(line.points);
    return times.map((at) => by.get(at) ?? null);
  });
  return [times.map((at) => at / 1000), ...values];
}

/** A moment of the axis: the time, with the date where that is another than before. @param {number} at seconds @param {number} [before] */
function moment(at, before) {
  const date = new Date(at * 1000);
  const time = `${date.getHours()}:${String(date.getMinutes()).padStart(2, "0")}${date.getSeconds() ? `:${String(date.getSeconds()).padStart(2, "0")}` : ""}`;
  const day = `${date.getDate()}.${date.getMonth() + 1}.`;
  const other = before !== undefined && new Date(before * 1000).getDate() !== date.getDate();
  return other ? `${time}\n${day}` : time;
}

/** What a colour of the style sheet is in the theme of now: a canvas knows neither variables nor `light-dark`.
 * @param {HTMLElement} box @param {string} name */
function shownAs(box, name) {
  box.style.color = `var(${name})`;
  const { color } = getComputedStyle(box);
  box.style.color = "";
  return color;
}

/** @param {HTMLElement} box @param {Line[]} series @param {any} state @param {string | undefined} crosshair @param {number} height */
function options(box, series, state, crosshair, height) {
  const colour = (/** @type {string} */ name) => shownAs(box, name);
  const axis = { stroke: () => colour("--chart-text"), grid: { stroke: () => colour("--chart-grid"), width: 1 }, ticks: { show: false }, font: "11px system-ui, sans-serif" };
  const given = () => state.current.given;
  return {
    width: box.clientWidth,
    height,
    legend: { show: false },
    cursor: { sync: crosshair ? { key: crosshair, setSeries: false } : undefined, drag: { x: true, y: false, setScale: false }, points: { size: 6 } },
    scales: {
      x: { time: true, range: (/** @type {any} */ _, /** @type {number} */ low, /** @type {number} */ high) => (given().range ? given().range.map((/** @type {number} */ at) => at / 1000) : [low, high]) },
      y: { range: (/** @type {any} */ _, /** @type {number} */ __, /** @type {number} */ high) => [0, given().max ?? Math.max(high * 1.1, 1)] },
    },
    axes: [{ ...axis, values: (/** @type {any} */ _, /** @type {number[]} */ all) => all.map((at, place) => moment(at, all[place - 1])) }, { ...axis, size: 64, values: (/** @type {any} */ _, /** @type {number[]} */ all) => all.map((value) => given().format(value)) }],
    series: [{}, ...series.map((line, at) => ({ label: line.label, stroke: () => colour(LINES[at % LINES.length]), width: 1.5, spanGaps: false, points: { show: false } }))],
    hooks: {
      setSelect: [(/** @type {any} */ plot) => selected(plot, given().onRange)],
      setCursor: [(/** @type {any} */ plot) => {
        const now = cursorOf(plot, given().marks);
        given().setAt((/** @type {Cursor} */ was) => (JSON.stringify(was) === JSON.stringify(now) ? was : now));
      }],
      draw: [(/** @type {any} */ plot) => drawMarks(plot, given().marks, colour)],
    },
  };
}

/** @param {any} plot @param {((range: [number, number] | null) => void) | undefined} onRange */
function selected(plot, onRange) {
  const { left, width } = plot.select;
  if (width < 4) return;
  onRange?.([plot.posToVal(left, "x") * 1000, plot.posToVal(left + width, "x") * 1000]);
  plot.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
}

/** @param {any} plot @param {Mark[]} marks @param {(name: string) => string} colour */
function drawMarks(plot, marks, colour) {
  const { ctx, bbox } = plot;
  ctx.save();
  ctx.setLineDash([4, 4]);
  for (const mark of marks) {
    const x = plot.valToPos(mark.at / 1000, "x", true);
    if (x < bbox.left || x > bbox.left + bbox.width) continue;
    ctx.strokeStyle = colour(`--${mark.kind ?? "calm"}`);
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
  }
  ctx.restore();
}
