// Visits pages and waits for what each must show; if asked to, follows every link to a page of another kind, too.
import { Console } from './console.mjs';

const UUID = /[0-9a-f]{8}-[0-9a-f-]{27}/g;
const kind = (path) => path.split('?')[0].replace(UUID, '*');

await Console.run(async (console, { pages, follow }) => {
  const visited = [];
  const waiting = Object.keys(pages);
  const kinds = new Set();
  const offer = (path) => {
    if (kinds.has(kind(path))) return;
    kinds.add(kind(path));
    waiting.push(path);
  };
  waiting.forEach((path) => kinds.add(kind(path)));
  while (waiting.length > 0) {
    const path = waiting.shift();
    await console.go(path);
    for (const text of [pages[path] ?? []].flat()) await console.seeNowOrLater(text);
    visited.push(path);
    if (!follow) continue;
    // A link to nowhere is a button: those have no path of their own.
    const links = await console.page.$$eval('a[href^="/"]', (all) => all.map((each) => each.getAttribute('href')));
    links.forEach(offer);
  }
  return visited;
});
