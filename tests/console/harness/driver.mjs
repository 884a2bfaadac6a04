// A headless browser that does what it is told: a request is a line of JSON on standard input, and so is its answer.
// Every tab has a storage of its own, records what goes wrong in it, and reaches no host but this one. Chromium keeps
// what it has started, loaded and compiled for a tab for the next one, unless that is to begin with nothing.
import { writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { createInterface } from 'node:readline';
import { launch, PATIENCE } from '../../e2e/console/console.mjs';

const installed = createRequire(`${process.cwd()}/`);
const browser = await launch(
  '--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1',
  '--renderer-process-limit=1',
  '--disable-site-isolation-trials', // or a blank page can't be in a process that has had another
);
const tabs = new Map();
const left = new Map(); // by origin: contexts whose tab was closed, each with a page that keeps its process

async function context(origin, first) {
  const kept = !first && left.get(origin)?.pop();
  if (kept) return kept;
  const permissions = ['clipboard-read', 'clipboard-write'];
  const made = await browser.newContext({ reducedMotion: 'reduce', locale: 'en-GB', timezoneId: 'UTC', permissions });
  if (!first) await (await made.newPage()).goto(`${origin}/healthcheck`);
  return made;
}

// Where the page's own policy was broken is reported like any other error of a script.
const POLICY = `addEventListener('securitypolicyviolation', (e) =>
  console.error('broken policy: ' + e.violatedDirective + ' ' + e.blockedURI + ' ' + e.sourceFile + ':' + e.lineNumber))`;
const HIDING = `(() => {
  let hidden = false;
  Object.defineProperty(document, 'hidden', { get: () => hidden });
  Object.defineProperty(document, 'visibilityState', { get: () => (hidden ? 'hidden' : 'visible') });
  addEventListener('tests:hide', (e) => { hidden = e.detail; document.dispatchEvent(new Event('visibilitychange')); });
})()`;

class Tab {
  problems = [];
  requests = [];
  pending = new Set();

  // `first`: as somebody's first tab of all, who has loaded nothing yet.
  static async make({ origin, width = 1280, height = 800, theme = 'light', clock = false, first = clock, polls = false, token = '', runs = 0 }) {
    const self = new Tab();
    Object.assign(self, { origin, first, context: await context(origin, first) });
    if (clock) await self.context.clock.install();
    const page = await self.context.newPage();
    await page.setViewportSize({ width, height });
    await page.emulateMedia({ colorScheme: theme });
    await page.addInitScript(POLICY);
    await page.addInitScript(HIDING);
    if (token) await page.addInitScript((kept) => sessionStorage.setItem('dstack-token', kept), token);
    const changes = (url) => url.pathname.endsWith('/api/v1/changes');
    // As where there is no stream of changes: behind the gateway of an API in AWS.
    const asked = (route) => route.continue({ headers: { ...route.request().headers(), accept: 'application/json' } });
    if (polls) await page.route(changes, asked);
    if (runs) await page.route(changes, (route) => crowded(route, runs));
    await self.page_(page);
    return self;
  }

  async page_(page) {
    this.page = page;
    page.setDefaultTimeout(PATIENCE);
    this.cdp = await this.context.newCDPSession(page);
    page.on('pageerror', (error) => this.problems.push(`a script failed: ${error.stack ?? error.message}`));
    page.on('console', (said) => {
      if (said.type() === 'error') this.problems.push(`console: ${said.text()} (${said.location().url})`);
    });
    page.on('request', (asked) => {
      const url = new URL(asked.url());
      if (url.origin !== this.origin && url.protocol.startsWith('http')) this.problems.push(`asks another host: ${asked.url()}`);
      this.pending.add(asked);
      this.requests.push({ method: asked.method(), url: asked.url(), kind: asked.resourceType() });
    });
    const ended = (asked) => this.pending.delete(asked);
    page.on('requestfinished', ended);
    page.on('requestfailed', ended);
  }

  // An element by what a user would call it. Only what is shown counts, unless it is asked for by its markup.
  find({ within, css, role, name, exact = true, label, text, has, nth }) {
    const from = within ? this.find(within) : this.page;
    let found = from;
    if (css) found = from.locator(css);
    else if (role) found = from.getByRole(role, name === undefined ? {} : { name, exact });
    else if (label !== undefined) found = from.getByLabel(label, { exact });
    else if (text !== undefined) found = from.getByText(text, { exact });
    if (has !== undefined) found = found.filter({ hasText: has });
    if (!css) found = found.filter({ visible: true });
    return nth === undefined ? found : found.nth(nth);
  }

  one(what) {
    return what.nth === undefined ? this.find(what).first() : this.find(what);
  }

  // Scripts of tests run beside the page's policy, which forbids what `page.evaluate` does.
  async script(expression) {
    const { result, exceptionDetails: failed } = await this.cdp.send('Runtime.evaluate', {
      expression,
      awaitPromise: true,
      returnByValue: true,
    });
    if (failed) throw new Error(failed.exception?.description ?? failed.text);
    return result.value;
  }

  // Until what is shown listens to keys: a page begins to after the frame that shows it.
  async drawn() {
    await this.script('new Promise((done) => requestAnimationFrame(() => setTimeout(done)))');
  }

  // Without the preloading of style sheets, for which it would put some into the page: its policy refuses that.
  async axe({ rules } = {}) {
    const only = rules ? { runOnly: { type: 'rule', values: rules } } : {};
    if (!(await this.script('!!window.axe'))) await this.script(`!!${installedAxe()}`);
    const found = await this.script(`axe.run(document, ${JSON.stringify({ resultTypes: ['violations'], preload: false, ...only })}).then((result) =>
      result.violations.map((each) => ({ rule: each.id, help: each.help, nodes: each.nodes.map((node) => ({
        at: node.target.join(' '), html: node.html.slice(0, 300), why: node.failureSummary })) })))`);
    return found;
  }
}

// As if there were so many runs: the first answer has copies of one that has ended, each submitted before the last.
async function crowded(route, runs) {
  const got = await route.fetch({ headers: { ...route.request().headers(), accept: 'application/json' } });
  if (got.status() !== 200) return route.fulfill({ response: got });
  const document = await got.json();
  if (!new URL(route.request().url()).searchParams.has('cursor')) {
    const one = document.runs.find((run) => run.name === 'ended');
    for (let number = 0; document.runs.length < runs; number++) {
      const at = new Date(Date.parse(one.submitted_at) - number).toISOString();
      document.runs.push({ ...one, id: `${one.id}-${number}`, name: `run-${number}`, submitted_at: at });
    }
  }
  return route.fulfill({ response: got, json: document });
}

let axe;
function installedAxe() {
  axe ??= installed('axe-core').source;
  return `(() => { ${axe} })()`;
}

const OPERATIONS = {
  open: (tab, { url }) => tab.page.goto(url).then((got) => got?.status() ?? 0),
  reload: (tab) => tab.page.reload().then(() => null),
  back: (tab) => tab.page.goBack().then(() => null),
  url: (tab) => tab.page.url(),
  see: (tab, what) => tab.one(what).waitFor(),
  gone: (tab, what) => tab.one(what).waitFor({ state: 'hidden' }),
  press: (tab, what) => tab.one(what).click(),
  fill: (tab, { text, ...what }) => tab.one(what).fill(text),
  // The pointer goes over an element, from one share of its width to another; with the button down, it drags.
  point: async (tab, { from, to = from, drag = false, ...what }) => {
    const { x, y, width, height } = await tab.one(what).boundingBox();
    const at = (share) => [x + share * width, y + height / 2];
    await tab.page.mouse.move(...at(from));
    if (drag) await tab.page.mouse.down();
    await tab.page.mouse.move(...at(to), { steps: 4 });
    if (drag) await tab.page.mouse.up();
  },
  choose: (tab, { option, ...what }) => tab.one(what).selectOption(option).then(() => null),
  keys: async (tab, { keys }) => {
    for (const key of keys) {
      await tab.drawn();
      await tab.page.keyboard.press(key);
    }
  },
  type: async (tab, { text }) => {
    await tab.drawn();
    await tab.page.keyboard.type(text);
  },
  count: (tab, what) => tab.find(what).count(),
  text: (tab, what) => tab.one(what).innerText(),
  texts: (tab, what) => tab.find(what).allInnerTexts(),
  value: (tab, what) => tab.one(what).inputValue(),
  attribute: (tab, { attribute, ...what }) => tab.one(what).getAttribute(attribute),
  box: (tab, what) => tab.one(what).boundingBox(),
  script: (tab, { expression }) => tab.script(expression),
  axe: (tab, { rules }) => tab.axe({ rules }),
  resize: (tab, size) => tab.page.setViewportSize(size),
  theme: (tab, { theme }) => tab.page.emulateMedia({ colorScheme: theme }),
  hide: (tab, { hidden }) => tab.script(`dispatchEvent(new CustomEvent('tests:hide', { detail: ${hidden} }))`),
  // Time passes for the page alone, in steps; after each step it gets the answers that it asked for.
  pass: async (tab, { seconds, step }) => {
    for (let gone = 0; gone < seconds; gone += step) {
      await tab.page.clock.runFor(step * 1000);
      for (const asked of [...tab.pending]) {
        await asked.response().catch(() => null);
        tab.pending.delete(asked);
      }
    }
  },
  picture: async (tab, { path }) => {
    const { data } = await tab.cdp.send('Page.captureScreenshot', { format: 'webp', quality: 82 });
    writeFileSync(path, Buffer.from(data, 'base64'));
  },
  // Until the page shows what it asked for; the feed of changes never ends.
  settled: async (tab) => {
    const until = Date.now() + PATIENCE;
    for (let quiet = 0; quiet < 2; ) {
      if (Date.now() > until) throw new Error(`the page never settles: ${[...tab.pending].map((asked) => asked.url()).join(' ')}`);
      const busy = [...tab.pending].filter((asked) => !/\/changes|\/events\?/.test(asked.url()) || asked.method() !== 'GET');
      for (const asked of busy) await ended(tab, asked);
      const loading = await tab.script(`!!document.querySelector('.loading, [aria-busy="true"]')`);
      quiet = busy.length || loading ? 0 : quiet + 1;
      await tab.drawn();
    }
  },
  offline: (tab, { offline }) => tab.context.setOffline(offline),
  problems: (tab) => tab.problems,
  requests: (tab) => tab.requests,
  bytes: (tab) => tab.script(`Promise.resolve(performance.getEntriesByType('navigation')
    .concat(performance.getEntriesByType('resource')).map((e) => ({ name: e.name, encoded: e.encodedBodySize,
      decoded: e.decodedBodySize, kind: e.initiatorType ?? 'navigation' })))`),
  // Milliseconds of CPU that the page's main thread has taken since its first question.
  work: async (tab) => {
    if (!tab.metered) {
      await tab.cdp.send('Performance.enable', { timeDomain: 'threadTicks' });
      tab.metered = true;
    }
    const { metrics } = await tab.cdp.send('Performance.getMetrics');
    const of = (name) => metrics.find((each) => each.name === name).value * 1000;
    return { script: of('ScriptDuration'), style: of('RecalcStyleDuration'), layout: of('LayoutDuration'), all: of('TaskDuration') };
  },
  heap: async (tab) => {
    await tab.cdp.send('HeapProfiler.collectGarbage');
    return (await tab.cdp.send('Runtime.getHeapUsage')).usedSize;
  },
  close: async (tab) => {
    const { context, first, origin, page } = tab;
    if (first) {
      await context.close();
      return tab.problems;
    }
    await page.close();
    await context.setOffline(false);
    await context.clearCookies();
    await context.pages()[0].evaluate(() => localStorage.clear());
    left.set(origin, [...(left.get(origin) ?? []), context]);
    return tab.problems;
  },
};

const UNTOLD = 500; // milliseconds after an answer, when its end isn't told, as of one without a body
const later = (ms) => new Promise((done) => setTimeout(done, ms));

async function ended(tab, asked) {
  const got = await Promise.race([asked.response().catch(() => null), later(PATIENCE)]);
  await Promise.race([got?.finished().catch(() => null), later(UNTOLD)]);
  tab.pending.delete(asked);
}

async function answer({ id, tab: number, op, ...asked }) {
  try {
    let value;
    if (op === 'tab') tabs.set(number, await Tab.make(asked));
    else value = await OPERATIONS[op](tabs.get(number), asked);
    if (op === 'close') tabs.delete(number);
    process.stdout.write(`${JSON.stringify({ id, value: value ?? null })}\n`);
  } catch (error) {
    process.stdout.write(`${JSON.stringify({ id, error: error.message })}\n`);
  }
}

process.stdin.once('close', () => browser.close().finally(() => process.exit())); // also amid an operation
process.stdout.write(`${JSON.stringify({ version: browser.version() })}\n`);
for await (const line of createInterface({ input: process.stdin })) await answer(JSON.parse(line));
