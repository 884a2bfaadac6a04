// The page of the API's description in a headless browser: what it shows of an operation, what it loads, and what fails.
import { launch, PATIENCE } from './console.mjs';

const { url, picture } = JSON.parse(process.argv[2]);
const browser = await launch();
try {
  const page = await browser.newPage({ viewport: { width: 1200, height: 1000 } });
  page.setDefaultTimeout(PATIENCE);
  const failures = [];
  const loaded = new Set();
  page.on('pageerror', (error) => failures.push(error.message));
  page.on('console', (said) => said.type() === 'error' && failures.push(said.text()));
  page.on('request', (asked) => loaded.add(new URL(asked.url()).pathname));
  await page.goto(`${url}/docs`);
  await page.getByRole('link', { name: 'get plan' }).first().waitFor();
  const links = await page.locator('nav a').count();
  await page.getByRole('searchbox').fill('/runs/get');
  const filtered = await page.locator('nav a').allInnerTexts();
  await page.getByRole('link', { name: 'get', exact: true }).click();
  const path = await page.locator('.path').innerText();
  await page.locator('summary code', { hasText: 'latest_job_submission' }).first().click();
  await page.locator('li li code', { hasText: 'exit_status' }).first().waitFor();
  if (picture) await page.screenshot({ path: picture });
  console.log(JSON.stringify({ failures, loaded: [...loaded].sort(), links, filtered, path }));
} finally {
  await browser.close();
}
