// The genuine console, served beside a control plane's API as its own server would, in a headless browser that records
// what goes wrong: calls that fail, and scripts that do. Run where the browser is installed.
import { createReadStream, existsSync, statSync } from 'node:fs';
import { createServer, request } from 'node:http';
import { createRequire } from 'node:module';
import { extname, join, normalize } from 'node:path';

const here = process.cwd();
const { chromium } = createRequire(`${here}/`)('playwright-core');

const TYPES = { '.html': 'text/html', '.js': 'text/javascript', '.css': 'text/css', '.svg': 'image/svg+xml' };
export const PATIENCE = Number(process.env.PATIENCE ?? 300_000); // milliseconds to wait for anything: two busy cores are slow
const QUIET = 250; // milliseconds without a call, after which a page has what it asked for
const HOSTED = /^\/api\/user\/[^/]+\/billing\/info$/; // a call that only the hosted edition answers

// Files of the folder; calls are passed on; any other path is a page of the console, which has one file for them all.
function serve(files, api) {
  const server = createServer((asked, answer) => {
    const { pathname } = new URL(asked.url, api);
    if (pathname.startsWith('/api/')) {
      const onward = request(new URL(asked.url, api), { method: asked.method, headers: asked.headers }, (got) => {
        answer.writeHead(got.statusCode, got.headers);
        got.pipe(answer);
      });
      onward.on('error', () => answer.writeHead(502).end());
      asked.pipe(onward);
      return;
    }
    const named = join(files, normalize(pathname));
    const exists = existsSync(named) && statSync(named).isFile();
    if (!exists && extname(pathname)) {
      answer.writeHead(404).end();
      return;
    }
    const file = exists ? named : join(files, 'index.html');
    answer.writeHead(200, { 'content-type': TYPES[extname(file)] ?? 'application/octet-stream' });
    createReadStream(file).pipe(answer);
  });
  return new Promise((ready) => server.listen(0, '127.0.0.1', () => ready(server)));
}

export function launch(...more) {
  return chromium.launch({
    executablePath: join(here, 'chromium'),
    timeout: PATIENCE,
    args: ['--no-sandbox', '--no-zygote', '--disable-gpu', '--disable-dev-shm-usage', ...more],
    env: {
      ...process.env,
      LD_LIBRARY_PATH: join(here, 'al2023', 'lib'),
      FONTCONFIG_FILE: join(import.meta.dirname, 'fonts.conf'),
      XDG_CACHE_HOME: join(here, 'cache'),
    },
  });
}

export class Console {
  failures = [];
  calls = new Set();
  #pending = new Set();
  #last = 0;

  // Runs `body` with a console that somebody with the token has signed in to; what it returns is printed as JSON,
  // together with what was recorded.
  static async run(body) {
    const { files, api, token, ...asked } = JSON.parse(process.argv[2]);
    const self = new Console();
    const server = await serve(files, api);
    self.url = `http://127.0.0.1:${server.address().port}`;
    const browser = await launch();
    try {
      self.page = await browser.newPage({ viewport: { width: 1600, height: 1200 } });
      self.page.setDefaultTimeout(PATIENCE);
      await self.page.route((url) => url.origin !== self.url, (route) => route.abort()); // nothing leaves this machine
      self.#record();
      await self.#signIn(token);
      const found = await body(self, asked);
      console.log(JSON.stringify({ found, calls: [...self.calls].sort(), failures: self.failures }));
    } catch (error) {
      const text = await self.page?.innerText('body').catch(() => '');
      console.error(`${error.stack}\n\n${self.page?.url()}\n${text}\n${JSON.stringify(self.failures, null, 1)}`);
      process.exitCode = 1;
    } finally {
      await browser.close();
      server.closeAllConnections();
      server.close();
    }
  }

  #record() {
    const told = (what) => this.failures.push(`${new URL(this.page.url()).pathname}: ${what}`);
    const ours = (asked) => new URL(asked.url()).pathname.startsWith('/api/');
    const ended = (asked) => {
      this.#pending.delete(asked);
      this.#last = Date.now();
    };
    this.page.on('pageerror', (error) => told(`the script failed: ${error.message}`));
    this.page.on('request', (asked) => ours(asked) && this.#pending.add(asked));
    this.page.on('requestfinished', ended);
    this.page.on('requestfailed', (asked) => {
      const left = asked.failure().errorText === 'net::ERR_ABORTED'; // for another page
      if (ours(asked) && !left) told(`${asked.method()} ${asked.url()}: ${asked.failure().errorText}`);
      ended(asked);
    });
    this.page.on('response', async (got) => {
      const { pathname } = new URL(got.url());
      if (!ours(got) || HOSTED.test(pathname)) return;
      this.calls.add(`${got.request().method()} ${pathname}`);
      if (got.status() < 400) return;
      told(`${got.status()} ${pathname} ${got.request().postData()} ${await got.text().catch(() => '')}`);
    });
  }

  async #signIn(token) {
    await this.page.goto(this.url);
    await this.page.getByRole('textbox').fill(token);
    await this.press('Continue');
    await this.page.waitForURL('**/runs');
    await this.settled();
  }

  // To a page as a click on a link goes there, without loading the console anew.
  async go(path) {
    await this.page.evaluate((to) => {
      history.pushState({}, '', to);
      dispatchEvent(new PopStateEvent('popstate'));
    }, path);
    await this.settled();
  }

  async settled() {
    this.#last = Date.now();
    for (const end = Date.now() + PATIENCE; Date.now() < end; ) {
      await new Promise((later) => setTimeout(later, 50));
      if (this.#pending.size === 0 && Date.now() - this.#last > QUIET) return;
    }
    throw new Error(`calls without an end: ${[...this.#pending].map((asked) => asked.url())}`);
  }

  see(text, timeout = PATIENCE) {
    return this.page.getByText(text).filter({ visible: true }).first().waitFor({ timeout });
  }

  // A market that can't be listed is asked within a deadline. On a busy machine its offers miss it, and are there when
  // the page is loaded again.
  async seeNowOrLater(text) {
    try {
      await this.see(text, PATIENCE / 10);
    } catch {
      await this.page.reload();
      await this.settled();
      await this.see(text);
    }
  }

  press(name, within = this.page) {
    return within.getByRole('button', { name, exact: true }).filter({ visible: true }).first().click();
  }
}
