// A script that couldn't be fetched, and names for copies.
import assert from 'node:assert/strict';
import { test } from 'node:test';

const lib = '../../chalicelib/console/lib';
const { script } = await import(`${lib}/script.js`);
const { freeName } = await import(`${lib}/templates.js`);
const { machinesCost, machinesText } = await import(`${lib}/offers.js`);

test('an address that failed is asked for under another, which browsers haven’t given up', async () => {
  const asked = [];
  let offline = true;
  const load = script(
    async () => { throw new TypeError('Failed to fetch dynamically imported module: https://gpu.example/console/more-1A.js'); },
    async (address) => {
      asked.push(address);
      if (offline) throw new TypeError(`Failed to fetch dynamically imported module: ${address}`);
      return 'here';
    },
  );
  await assert.rejects(load());
  await assert.rejects(load());
  offline = false;
  assert.equal(await load(), 'here');
  assert.deepEqual(asked, ['https://gpu.example/console/more-1A.js?again=1', 'https://gpu.example/console/more-1A.js?again=2']);
});

test('where the failure names no address the same is tried', async () => {
  let tries = 0;
  const load = script(async () => { if (++tries < 2) throw new TypeError('Importing a module script failed.'); return 'here'; });
  await assert.rejects(load());
  assert.equal(await load(), 'here');
});

test('a copy gets the first name that is free', () => {
  assert.equal(freeName('train', new Set(['train'])), 'train-2');
  assert.equal(freeName('train', new Set(['train', 'train-2'])), 'train-3');
  assert.equal(freeName('train-2', new Set(['train', 'train-2'])), 'train-3');
  assert.equal(freeName('llama-3', new Set(['llama-3'])), 'llama-3-2');
});

test('a plan of machines says what they cost together', () => {
  const each = { cheapest_per_hour_usd: 25.76, dearest_per_hour_usd: 30.8 };
  assert.equal(machinesCost({ ...each, most: 3 }), '$25.76/h to $30.80/h each, up to 3 × $30.80/h = $92.40/h together.');
  assert.equal(machinesCost({ ...each, most: null }), '$25.76/h to $30.80/h each.');
  assert.equal(machinesText(0, 4), '0 machines at once and up to 4');
  assert.equal(machinesText(3, 3), '3 machines at once');
  assert.equal(machinesText(1, null), '1 machine at once and as many as runs need');
});
