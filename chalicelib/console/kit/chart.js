// Lines over time. Charts of one group share their crosshair and their range. The library is loaded with the first one.
import { html, useEffect, useRef } from "./preact.js";

/**
 * @typedef {{label: string, points: [number, number | null][], format?: (value: number) => string}} Line points by milliseconds
 * @typedef {{at: number, label: string, kind?: "good" | "bad" | "warn" | "calm"}} Mark
 */

const LINES = ["--line-1", "--line-2", "--line-3", "--line-4", "--line-5", "--line-6", "--line-7", "--line-8"];
const HEIGHT = 180;
/** @type {Promise<any> | null} */
let library = null;
const load = () => (library ??= known().then(() => import("uplot")).then((module) => module.default));

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
  state.current.given = { range, onRange, marks, max, format };
  const shape = JSON.stringify([series.map((each) => each.label), crosshair, height]);
  useEffect(() => {
    let over = false, plot = /** @type {any} */ (null);
    const draw = (/** @type {any} */ uPlot) => {
      if (over) return;
      plot = new uPlot(options(ref.current, series, state, crosshair, height), columns(series), ref.current);
      state.current.plot = plot;
    };
    void load().then(draw);
    const watched = new ResizeObserver(() => ref.current && plot?.setSize({ width: ref.current.clientWidth, height }));
    watched.observe(ref.current);
    const theme = new MutationObserver(() => plot?.redraw(false));
    theme.observe(document.documentElement, { attributeFilter: ["data-theme"] });
    return () => {
      over = true;
      watched.disconnect();
      theme.disconnect();
      plot?.destroy();
      state.current.plot = null;
    };
  }, [shape]);
  useEffect(() => {
    state.current.plot?.setData(columns(series));
  }, [series]);
  useEffect(() => {
    const plot = state.current.plot;
    if (plot) plot.setData(plot.data);
  }, [range?.[0], range?.[1], marks]);
  return html`<figure class="chart"><figcaption>${label}<${Legend} series=${series} format=${format} /></figcaption>
    <div class="chart-plot" ref=${ref} role="img" aria-label=${summary(label, series, format)}></div></figure>`;
}

/** @param {string} label @param {Line[]} series @param {(value: number) => string} format */
function summary(label, series, format) {
  const now = series.map((line) => [line.label, latest(line)]).filter(([, value]) => value !== null);
  return `${label}. ${now.map(([name, value]) => `${name}: ${format(/** @type {number} */ (value))}`).join(", ") || "No values."}`;
}

/** @param {Line} line */
const latest = (line) => line.points.findLast(([, value]) => value !== null)?.[1] ?? null;

/** @param {{series: Line[], format: (value: number) => string}} props */
function Legend({ series, format }) {
  return html`<span class="legend">${series.map((line, at) => {
    const value = latest(line);
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
