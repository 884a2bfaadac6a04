// What a job used of its machine, as series for charts, with gaps where nothing came.

/** @typedef {import("../types").Metrics} Metrics */
/** @typedef {Metrics["items"][number]} Point */
/** @typedef {{label: string, points: [number, number | null][]}} Line by milliseconds */
/** @typedef {{id: string, title: string, unit: "%" | "bytes" | "cores", most: number | null, lines: Line[]}} ChartData */

const GAP = 3; // of the usual distance of points

/** The points of several answers, oldest first, each once.
 * @param {Point[]} before @param {Point[]} more @param {number} [most] */
export function merged(before, more, most = 5000) {
  const points = new Map([...before, ...more].map((point) => [point.at, point]));
  return [...points.values()].sort((a, b) => Date.parse(a.at) - Date.parse(b.at)).slice(-most);
}

/** Charts of points, which are oldest first. @param {Omit<Metrics, "items">} machine @param {Point[]} points
 * @returns {ChartData[]} those of which there is something */
export function chartsOf(machine, points) {
  const shown = withGaps(points);
  /** @param {string} label @param {(point: Point) => number | null | undefined} read @returns {Line} */
  const line = (label, read) => ({ label, points: shown.map(({ at, point }) => /** @type {[number, number | null]} */ ([at, point ? (read(point) ?? null) : null])) });
  const gpus = Math.max(machine.gpus ?? 0, ...points.map((point) => point.gpus.length), 0);
  const each = Array.from({ length: gpus }, (_, gpu) => gpu);
  /** @type {ChartData[]} */
  const charts = [
    { id: "gpu", title: "GPU use", unit: "%", most: 100, lines: each.map((gpu) => line(`GPU ${gpu}`, (point) => point.gpus[gpu]?.percent)) },
    { id: "gpu-memory", title: "GPU memory", unit: "bytes", most: null, lines: each.map((gpu) => line(`GPU ${gpu}`, (point) => point.gpus[gpu]?.memory_bytes)) },
    { id: "cpu", title: machine.cpus ? `CPU, of ${machine.cpus} cores` : "CPU", unit: "cores", most: null, lines: [line("used", (point) => point.cpu_percent / 100)] },
    {
      id: "memory", title: machine.memory_total_bytes ? `Memory, of ${bytes(machine.memory_total_bytes)}` : "Memory", unit: "bytes", most: null,
      lines: [
        line("used", (point) => point.memory_bytes),
        line("in use lately", (point) => point.working_set_bytes),
      ],
    },
  ];
  return charts.filter((chart) => chart.lines.some(({ points: all }) => all.some(([, value]) => value !== null)));
}

// Where points are missing, a moment without values ends the line.
/** @param {Point[]} points */
function withGaps(points) {
  const at = points.map((point) => Date.parse(point.at));
  const steps = at.slice(1).map((time, index) => time - /** @type {number} */ (at[index])).sort((a, b) => a - b);
  const usual = steps[steps.length >> 1] ?? 0;
  return points.flatMap((point, index) => {
    const here = { at: /** @type {number} */ (at[index]), point };
    const before = at[index - 1];
    const gap = before !== undefined && usual > 0 && here.at - before > GAP * usual;
    return gap ? [{ at: before + usual, point: null }, here] : [here];
  });
}

const UNITS = ["B", "KB", "MB", "GB", "TB"];

/** @param {number} count */
export function bytes(count) {
  let power = 0;
  while (count >= 1024 && power < UNITS.length - 1) [count, power] = [count / 1024, power + 1];
  return `${count < 10 && power > 0 ? count.toFixed(1) : Math.round(count)} ${UNITS[power]}`;
}

/** @param {number} value @param {ChartData["unit"]} unit */
export function inUnit(value, unit) {
  if (unit === "cores") return value < 10 ? value.toFixed(1) : String(Math.round(value));
  return unit === "%" ? `${Math.round(value)} %` : bytes(value);
}
