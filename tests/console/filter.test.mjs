// The language of filters, and what lists say of a run.
import assert from 'node:assert/strict';
import { test } from 'node:test';

const lib = '../../chalicelib/console/lib';
const { hasTerm, matcher, problemWith, suggestions, termsOf, toggled } = await import(`${lib}/filter.js`);
const { RUN_FIELDS, allText, gpuText, placeText, shortWhy, whyText } = await import(`${lib}/run_facts.js`);
const { attention, summary } = await import(`${lib}/overview.js`);

const NOW = Date.parse('2026-11-28T12:00:00Z');
const HOUR = 3_600_000;
const run = (name, more = {}) => ({
  id: name, name, type: 'task', project: 'main', user: 'ana', status: 'running', reason: null, why: null, fleet: null, stopped_by: null,
  submitted_at: new Date(NOW - HOUR).toISOString(), finished_at: null, next_start_at: null, asks_for: null, gpus: [], places: [],
  replicas: null, price_per_hour_usd: 0, cost_usd: 0, ...more,
});
const RUNS = [
  run('train-7', { gpus: [{ name: 'H100', count: 8, memory_gb: 80 }], places: [{ backend: 'aws', region: 'eu-west-1' }], cost_usd: 61.2, price_per_hour_usd: 19.8 }),
  run('train-8', { status: 'submitted', asks_for: 'H100:8', why: 'nowhere to run: no offers; another reason', user: 'bo' }),
  run('eval-3', { status: 'failed', reason: 'job_failed', why: 'exited with status 1', finished_at: new Date(NOW - HOUR).toISOString(), submitted_at: new Date(NOW - 30 * HOUR).toISOString(), user: 'bo' }),
  run('chat', { type: 'service', replicas: { wanted: 3, ready: 2, running: 3 }, cost_usd: 3 }),
];
const found = (text) => RUNS.filter(matcher(termsOf(text), { fields: RUN_FIELDS, text: allText, me: 'bo', now: NOW })).map((each) => each.name);

test('terms are joined by and, their values by or, and a minus turns one around', () => {
  const cases = {
    '': ['train-7', 'train-8', 'eval-3', 'chat'],
    'status:running': ['train-7', 'chat'],
    'status:running,failed -type:service': ['train-7', 'eval-3'],
    'status:waiting user:me': ['train-8'],
    'status:active user:bo': ['train-8'],
    'gpu:h100': ['train-7', 'train-8'],
    'backend:aws region:eu': ['train-7'],
    'cost:>5': ['train-7'],
    'cost:3': ['train-7', 'chat'],
    'cost:<=3 price:<1': ['train-8', 'eval-3', 'chat'],
    'age:<2h': ['train-7', 'train-8', 'chat'],
    'age:>1d': ['eval-3'],
    '"status 1"': ['eval-3'],
    'TRAIN': ['train-7', 'train-8'],
    '-train -chat': ['eval-3'],
    'why:"no offers"': ['train-8'],
  };
  for (const [text, names] of Object.entries(cases)) assert.deepEqual(found(text), names, text);
});

test('what is not understood is said, and changes nothing', () => {
  assert.match(problemWith(termsOf('colour:red'), RUN_FIELDS), /“colour:” isn’t known here. Use status:, user:/);
  assert.match(problemWith(termsOf('cost:much'), RUN_FIELDS), /needs a number/);
  assert.match(problemWith(termsOf('age:5'), RUN_FIELDS), /length of time/);
  assert.match(problemWith(termsOf('status:""'), RUN_FIELDS), /missing/);
  assert.equal(problemWith(termsOf('status:running "colour:red" -user:me cost:>1.5 age:<90min'), RUN_FIELDS), null);
  assert.deepEqual(found('colour:red cost:much'), found(''));
});

test('hostile filters end', () => {
  for (const text of ['"'.repeat(10_000), ':'.repeat(10_000), '-'.repeat(10_000), 'a:'.repeat(5_000)]) found(text);
});

test('a chip adds its term, replaces another of the key, and takes it away again', () => {
  assert.equal(toggled('gpu:h100', 'status:active'), 'gpu:h100 status:active');
  assert.equal(toggled('status:failed gpu:h100', 'status:active'), 'gpu:h100 status:active');
  assert.equal(toggled('gpu:h100 status:active', 'status:active'), 'gpu:h100');
  assert.equal(hasTerm('gpu:h100 status:active', 'status:active'), true);
});

test('words are completed by keys, and by values that are there', () => {
  assert.deepEqual(suggestions('st', RUN_FIELDS, RUNS).map((each) => each.text), ['status:']);
  assert.deepEqual(suggestions('status:running user:', RUN_FIELDS, RUNS).map((each) => each.text), ['user:ana', 'user:bo', 'user:me']);
  assert.deepEqual(suggestions('-status:failed,ru', RUN_FIELDS, RUNS).map((each) => each.text), ['-status:failed,running']);
  assert.deepEqual(suggestions('cost:', RUN_FIELDS, RUNS), []);
});

test('a run in few words', () => {
  assert.equal(gpuText(RUNS[0]), 'H100 × 8');
  assert.equal(gpuText(RUNS[1]), 'H100:8');
  assert.equal(placeText(RUNS[0]), 'aws eu-west-1');
  assert.equal(placeText(run('x', { places: ['a', 'b', 'c'].map((region) => ({ backend: 'aws', region })) })), '3 places');
  assert.equal(shortWhy(RUNS[1].why), 'nowhere to run: no offers …');
  assert.equal(whyText(run('x', { status: 'terminated', reason: 'stopped_by_user', stopped_by: 'bo' })), 'stopped by bo');
  assert.equal(whyText(run('x', { status: 'failed', reason: 'retry_limit_exceeded' })), 'retry limit exceeded');
});

test('what needs attention: own failures first, then services, waits and machines; not what is old or replaced', () => {
  const ill = { id: 'i', name: 'box-0', fleet: 'box', status: 'busy', health: 'warning', health_why: 'ECC errors', unreachable: false, created_at: RUNS[0].submitted_at };
  const runs = [run('mine', { status: 'failed', user: 'ana', finished_at: RUNS[2].finished_at }), ...RUNS, run('old', { status: 'failed', finished_at: new Date(NOW - 48 * HOUR).toISOString() }), run('chat', { status: 'failed', finished_at: RUNS[2].finished_at })];
  const items = attention(runs, [ill], [], { me: 'ana', now: NOW });
  assert.deepEqual(items.map((item) => item.name), ['mine', 'eval-3', 'chat', 'box-0', 'train-8']);
  assert.equal(items[2].why, '2 of 3 replicas ready');
});

test('the sums of a project', () => {
  const fleets = [{ gpus: 10, busy_gpus: 8, price_per_hour_usd: 20 }, { gpus: 0, busy_gpus: 0, price_per_hour_usd: 0.5 }];
  assert.deepEqual(summary(RUNS, fleets, NOW), { running: 2, waiting: 1, failed: 1, gpus: 10, busy: 8, hourly: 20.5 });
});

test('what has changed is said in one sentence', async () => {
  const { changedSince, sentence, statusesOf } = await import(`${lib}/announce.js`);
  const before = statusesOf(RUNS);
  assert.equal(sentence(changedSince(before, RUNS)), '');
  const after = [{ ...RUNS[0], status: 'failed' }, ...RUNS.slice(1), run('new')];
  assert.equal(sentence(changedSince(before, after)), 'train-7 is failed, new is running.');
  assert.equal(sentence(changedSince(new Map(), [...RUNS, ...RUNS])), '8 runs changed.');
});
