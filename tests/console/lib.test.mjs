// The pure functions that the pages share.
import assert from 'node:assert/strict';
import { test } from 'node:test';

const lib = '../../chalicelib/console/lib';
const { duration, ago } = await import(`${lib}/time.js`);
const { money, rate, counted } = await import(`${lib}/money.js`);
const { parse, format } = await import(`${lib}/route.js`);
const { sorted, sortOf, sortText } = await import(`${lib}/sorting.js`);
const { slotsOf, windowOf } = await import(`${lib}/windows.js`);
const { best, score } = await import(`${lib}/match.js`);
const { may } = await import(`${lib}/rights.js`);
const { problemOf } = await import(`${lib}/problem.js`);

const SECOND = 1000, MINUTE = 60 * SECOND, HOUR = 60 * MINUTE, DAY = 24 * HOUR;

test('a length of time has two units at most', () => {
  const cases = [[0, '0 s'], [59.9 * SECOND, '59 s'], [71 * SECOND, '1 min 11 s'], [11 * MINUTE + SECOND, '11 min'], [3 * HOUR + 2 * MINUTE, '3 h 2 min'], [2 * DAY + HOUR, '2 d 1 h'], [-5, '0 s']];
  for (const [ms, text] of cases) assert.equal(duration(ms), text);
});

test('a moment is relative to now, before and after', () => {
  assert.equal(ago(0, 3 * HOUR), '3 h ago');
  assert.equal(ago(90 * SECOND, 0), 'in 1 min');
  assert.equal(ago(0, SECOND), 'just now');
});

test('dollars have cents, and thousands are grouped', () => {
  assert.equal(money(1234567.891), '$1,234,567.89');
  assert.equal(money(0), '$0.00');
  assert.equal(money(0.004), '< $0.01');
  assert.equal(rate(0.0312), '$0.031/h');
  assert.equal(rate(19.8), '$19.80/h');
  assert.equal(counted(1204, 'run'), '1,204 runs');
});

test('an address comes back as it was made, whatever the names', () => {
  for (const [project, page, parts, query] of [['main', 'runs', ['a b/c?d#é'], { tab: 'logs', q: 'user:me "x&y"' }], [null, 'users', [], {}]]) {
    assert.deepEqual(parse(format(project, page, ...parts, query)), { project, page, parts, query });
  }
  assert.deepEqual(parse(''), { project: null, page: '', parts: [], query: {} });
  assert.equal(format('main', 'runs', { q: '', sort: null }), '#/main/runs');
  assert.equal(parse('#/main/runs/100%').parts[0], '100%');
});

test('rows sort as people do, without a value last in both directions', () => {
  const rows = ['run-10', 'run-2', null, 'Run-1'];
  assert.deepEqual(sorted(rows, (row) => row, false), ['Run-1', 'run-2', 'run-10', null]);
  assert.deepEqual(sorted(rows, (row) => row, true), ['run-10', 'run-2', 'Run-1', null]);
  assert.equal(sortText(sortOf('-cost', { key: 'name', down: false })), '-cost');
});

test('the rows that are drawn are those in sight', () => {
  assert.deepEqual(windowOf(0, 360, 36, 10_000), { first: 0, last: 13 });
  assert.deepEqual(windowOf(36_000, 360, 36, 10_000), { first: 997, last: 1013 });
  assert.deepEqual(windowOf(1e9, 360, 36, 5), { first: 2, last: 5 });
  assert.deepEqual(windowOf(0, 360, 36, 0), { first: 0, last: 0 });

test('rows in sight keep their elements, others take those that have become free', () => {
  const shown = (slots) => Object.fromEntries(slots);
  const first = slotsOf(new Map(), ['a', 'b', 'c', 'd']);
  assert.deepEqual(shown(first), { a: 0, b: 1, c: 2, d: 3 });
  const notch = slotsOf(first, ['b', 'c', 'd', 'e']);
  assert.deepEqual(shown(notch), { b: 1, c: 2, d: 3, e: 0 });
  assert.deepEqual(shown(slotsOf(notch, ['d', 'e', 'f', 'g', 'h'])), { d: 1, e: 2, f: 3, g: 0, h: 4 }, 'in place, in the order that they are in');
  assert.deepEqual(shown(slotsOf(notch, ['new', 'b', 'c', 'd', 'e'])), { new: 4, b: 1, c: 2, d: 3, e: 0 });
  assert.deepEqual(shown(slotsOf(notch, [])), {});
  const alone = slotsOf(notch, ['d']), again = slotsOf(alone, ['a', 'b', 'c', 'd']);
  assert.equal(new Set(again.values()).size, 4, 'a filter that left one row was taken off: none shares an element');
});
});

test('a few letters find what begins with them first', () => {
  assert.deepEqual(best('tr', ['extra', 'train-7', 'other'], (text) => text, 5), ['train-7', 'extra', 'other']);
  assert.equal(score('zz', 'train'), null);
});

test('roles have what they need, and global admins everything', () => {
  const asked = (...given) => may(given[0], 'main', ...given.slice(1));
  assert.equal(asked('run', 'user', false), true);
  assert.equal(asked('manage', 'user', false), false);
  assert.equal(asked('administer', 'manager', false), false);
  assert.equal(asked('server', 'admin', false), false);
  assert.equal(may('server', null, null, true), true);
  assert.equal(asked('run', null, false), false);
});

test('an access token has its verbs in its projects, and what no token may isn’t offered', () => {
  const reader = { verbs: ['read'], projects: [] }, runner = { verbs: ['read', 'run', 'server'], projects: ['main'] };
  assert.equal(may('run', 'main', 'admin', true, reader), false);
  assert.equal(may('costs', 'main', 'manager', false, reader), true);
  assert.equal(may('run', 'main', 'user', false, runner), true);
  assert.equal(may('run', 'other', 'user', false, runner), false);
  assert.equal(may('server', null, null, true, runner), false);
  assert.equal(may('people', null, null, true, { verbs: ['read', 'run', 'fleets', 'project', 'server'], projects: [] }), false);
  assert.equal(may('people', null, null, true), true);
});

test('problems of both kinds say what was wrong', () => {
  const problem = problemOf(422, { title: 'The request has mistakes', detail: 'No name', code: 'invalid', hint: 'Give one', errors: [{ pointer: '/name' }] });
  assert.deepEqual([problem.message, problem.hint, problem.field, problem.code], ['No name', 'Give one', '/name', 'invalid']);
  assert.equal(problemOf(400, { detail: [{ msg: 'older', code: 'error' }] }).detail, 'older');
  assert.equal(problemOf(403, { detail: { msg: 'not with this', code: 'forbidden' } }).detail, 'not with this');
  assert.match(problemOf(502, null).detail, /502/);
});

test('what an address brings, and where it may send a browser', async () => {
  const { arrivalOf, isLocal, placeOf } = await import(`${lib}/arrival.js`);
  assert.equal(arrivalOf('#/main/runs?code=no'), null);
  assert.deepEqual(arrivalOf('#code=c&to=%2Fmain%2Fruns%3Fq%3Da'), { kind: 'code', code: 'c', to: '#/main/runs?q=a' });
  assert.deepEqual(arrivalOf('#code=c&to=https://elsewhere'), { kind: 'code', code: 'c', to: '#/' });
  assert.deepEqual(arrivalOf('#sign-on=corp&code=c&state=s'), { kind: 'sign-on', provider: 'corp', code: 'c', state: 's', error: '' });
  assert.equal(placeOf('/main/runs'), '#/main/runs');
  assert.deepEqual(['http://localhost:10999/auth/callback', 'https://localhost/', 'http://localhost.example.com/', 'javascript:alert(1)', null].map(isLocal), [true, false, false, false, false]);
});
