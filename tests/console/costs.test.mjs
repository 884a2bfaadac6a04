// Costs as bars: steps without gaps, the rest as one, and scales with round numbers.
import assert from 'node:assert/strict';
import { test } from 'node:test';

const { charted, idleShare, labelled, REST, scaleOf, stepsOf, stepText, titleOf } = await import('../../chalicelib/console/lib/costs.js');

const DAY = 86_400_000, FIRST = Date.parse('2026-11-01T00:00:00Z');
const at = (day) => new Date(FIRST + day * DAY).toISOString();
const series = (name, ...days) => ({
  name,
  usd: days.reduce((sum, [, usd]) => sum + usd, 0), idle_usd: days.reduce((sum, [, , idle = 0]) => sum + idle, 0), gpu_hours: 1, idle_gpu_hours: 0,
  steps: days.map(([day, usd, idle = 0]) => ({ at: at(day), usd, idle_usd: idle, gpu_hours: 1, idle_gpu_hours: 0 })),
});
const costs = (by, ...items) => ({ since: at(0), until: at(5), by, step: 'day', items, usd: 0, idle_usd: 0, gpu_hours: 0, idle_gpu_hours: 0, month: {}, budget_usd_per_day: null });

test('every day up to now has its bar, also one that cost nothing', () => {
  const steps = stepsOf(costs('user', series('ann', [0, 3], [2, 5]), series(null, [2, 1, 1])), FIRST + 3.5 * DAY);
  assert.deepEqual(steps.map((step) => step.usd), [3, 0, 6, 0]);
  assert.deepEqual(steps[2].parts, [{ name: 'ann', index: 0, usd: 5, idle: 0 }, { name: 'idle', index: -1, usd: 1, idle: 1 }]);
});

test('of more than eight names the last are one, and nothing is lost', () => {
  const names = Array.from({ length: 30 }, (_, number) => series(`user-${number}`, [0, 30 - number]));
  const shown = charted(costs('user', ...names));
  assert.equal(shown.length, 8);
  assert.equal(shown[7].name, REST);
  assert.equal(shown.reduce((sum, item) => sum + item.usd, 0), names.reduce((sum, item) => sum + item.usd, 0));
  assert.equal(stepsOf(costs('user', ...names), FIRST + DAY)[0].usd, (30 * 31) / 2);
  assert.equal(stepsOf(costs('user', ...names), FIRST + DAY)[0].parts.length, 8);
});

test('what cost nothing has no bar, and its hours say how much was idle', () => {
  assert.deepEqual(charted(costs('gpu', { ...series(null), usd: 0 })), []);
  assert.equal(idleShare({ usd: 0, idle_usd: 0, gpu_hours: 4, idle_gpu_hours: 1 }), '25 %');
  assert.equal(idleShare({ usd: 3, idle_usd: 1, gpu_hours: 0, idle_gpu_hours: 0 }), '33 %');
  assert.equal(idleShare({ usd: 0, idle_usd: 0, gpu_hours: 0, idle_gpu_hours: 0 }), '–');
});

test('a scale has round numbers and ends above the highest bar', () => {
  for (const [most, lines] of [[0, [0, 1]], [3.9, [0, 1, 2, 3, 4]], [100, [0, 25, 50, 75, 100]], [0.011, [0, 0.005, 0.01, 0.015]], [1234, [0, 500, 1000, 1500]]]) assert.deepEqual(scaleOf(most), lines);
});

test('labels are far enough apart, and the newest has one', () => {
  const shown = Array.from({ length: 30 }, (_, index) => index).filter(labelled(30, 10));
  assert.deepEqual(shown, [2, 5, 8, 11, 14, 17, 20, 23, 26, 29]);
  assert.equal(labelled(3, 10)(0), true);
});

test('days and hours are those of UTC', () => {
  assert.equal(stepText(FIRST, 'day'), 'Nov 1');
  assert.equal(stepText(FIRST + 5 * 3_600_000, 'hour'), '05:00');
  assert.equal(titleOf(null, 'user'), 'idle');
  assert.equal(titleOf(null, 'gpu'), 'no GPU');
});
