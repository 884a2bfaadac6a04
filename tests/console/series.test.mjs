import assert from "node:assert/strict";
import { test } from "node:test";

import { bytes, chartsOf, inUnit, merged } from "../../chalicelib/console/lib/series.js";

const START = 1_790_000_000_000;
const at = (second) => new Date(START + second * 1000).toISOString();
const point = (second, cpu, gpus = []) => ({ at: at(second), cpu_percent: cpu, memory_bytes: 2048, working_set_bytes: 1024, gpus });
const MACHINE = { cpus: 4, memory_total_bytes: 8192, gpus: 0 };

test("answers are merged by date", () => {
  const points = merged([point(10, 1), point(20, 2)], [point(30, 3), point(20, 2)]);
  assert.deepEqual(points.map((each) => each.cpu_percent), [1, 2, 3]);
  assert.deepEqual(merged(points, [point(0, 0)], 2).map((each) => each.cpu_percent), [2, 3]);
});

const values = (line) => line.points.map(([, value]) => value);

test("each chart has its lines, and what there is nothing of has no chart", () => {
  const charts = chartsOf(MACHINE, [point(10, 150), point(20, 350)]);
  assert.deepEqual(charts.map((chart) => [chart.title, chart.most]), [["CPU, of 4 cores", null], ["Memory, of 8.0 KB", null]]);
  assert.deepEqual(charts[0].lines[0].points, [[START + 10_000, 1.5], [START + 20_000, 3.5]]);
  assert.deepEqual(charts[1].lines.map((line) => values(line)[0]), [2048, 1024]);
  assert.deepEqual(chartsOf(MACHINE, []), []);
});

test("each GPU has a line; a GPU that reports nothing has gaps", () => {
  const gpus = [{ percent: 90, memory_bytes: 5 }, { percent: null, memory_bytes: 7 }];
  const charts = chartsOf({ ...MACHINE, gpus: 2 }, [point(10, 1, gpus), point(20, 1)]);
  assert.deepEqual(charts[0].lines.map((line) => [line.label, values(line)]), [["GPU 0", [90, null]], ["GPU 1", [null, null]]]);
  assert.deepEqual(values(charts[1].lines[1]), [7, null]);
});

test("where points are missing the line ends", () => {
  const [{ lines: [line] }] = chartsOf(MACHINE, [point(10, 1), point(20, 2), point(30, 3), point(90, 4)]);
  assert.deepEqual(line.points.map(([at]) => (at - START) / 1000), [10, 20, 30, 40, 90]);
  assert.deepEqual(values(line), [0.01, 0.02, 0.03, null, 0.04]);
});

test("amounts are short", () => {
  assert.deepEqual([0, 1023, 1536, 80 * 2 ** 30, 2 ** 50].map(bytes), ["0 B", "1023 B", "1.5 KB", "80 GB", "1024 TB"]);
  assert.equal(inUnit(99.6, "%"), "100 %");
  assert.deepEqual([inUnit(0.25, "cores"), inUnit(24, "cores"), inUnit(2048, "bytes")], ["0.3", "24", "2.0 KB"]);
});
