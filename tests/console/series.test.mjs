import assert from "node:assert/strict";
import { test } from "node:test";

import { bytes, chartsOf, inUnit, latest, merged } from "../../chalicelib/console/lib/series.js";

const at = (second) => new Date(1_790_000_000_000 + second * 1000).toISOString();
const point = (second, cpu, gpus = []) => ({ at: at(second), cpu_percent: cpu, memory_bytes: 2048, working_set_bytes: 1024, gpus });
const MACHINE = { cpus: 4, memory_total_bytes: 8192, gpus: 0 };

test("answers are merged by date", () => {
  const points = merged([point(10, 1), point(20, 2)], [point(30, 3), point(20, 2)]);
  assert.deepEqual(points.map((each) => each.cpu_percent), [1, 2, 3]);
  assert.deepEqual(merged(points, [point(0, 0)], 2).map((each) => each.cpu_percent), [2, 3]);
});

test("each chart has its lines, and what there is nothing of has no chart", () => {
  const { times, charts } = chartsOf(MACHINE, [point(10, 150), point(20, 350)]);
  assert.deepEqual(times, [1_790_000_010, 1_790_000_020]);
  assert.deepEqual(charts.map((chart) => [chart.id, chart.most]), [["cpu", 400], ["memory", 8192]]);
  assert.deepEqual(charts[0].lines[0].values, [150, 350]);
  assert.deepEqual(chartsOf(MACHINE, []), { times: [], charts: [] });
});

test("each GPU has a line; a GPU that reports nothing has gaps", () => {
  const gpus = [{ percent: 90, memory_bytes: 5 }, { percent: null, memory_bytes: 7 }];
  const { charts } = chartsOf({ ...MACHINE, gpus: 2 }, [point(10, 1, gpus), point(20, 1)]);
  assert.deepEqual(charts[0].lines, [{ label: "GPU 0", values: [90, null] }, { label: "GPU 1", values: [null, null] }]);
  assert.deepEqual(charts[1].lines[1].values, [7, null]);
});

test("where points are missing the line ends", () => {
  const { times, charts } = chartsOf(MACHINE, [point(10, 1), point(20, 2), point(30, 3), point(90, 4)]);
  assert.deepEqual(times.map((time) => time - 1_790_000_000), [10, 20, 30, 40, 90]);
  assert.deepEqual(charts[0].lines[0].values, [1, 2, 3, null, 4]);
  assert.equal(latest({ label: "", values: [1, 2, null] }), 2);
  assert.equal(latest({ label: "", values: [] }), null);
});

test("amounts are short", () => {
  assert.deepEqual([0, 1023, 1536, 80 * 2 ** 30, 2 ** 50].map(bytes), ["0 B", "1023 B", "1.5 KB", "80 GB", "1024 TB"]);
  assert.equal(inUnit(99.6, "%"), "100 %");
});
