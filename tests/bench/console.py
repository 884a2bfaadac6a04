"""The console in a real browser: how soon something is on screen, how fast pages change, how ten thousand runs scroll.

Times are the browser's own clock. Work is CPU of the page's main thread, of which a frame has 16 ms at sixty a second.
`heap_mb` is what a page keeps after a hundred more, over what it kept before.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from tests.bench.listing import add_copies
from tests.bench.measure import report
from tests.console.harness import world
from tests.console.harness.browser import Browser, Tab
from tests.harness.server import Server, until

ROUNDS, RUNS, LINES, STEPS = 5, 10_000, 100_000, 40
PAINTED = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? 0"
ROWS = "document.querySelector('main table')?.getAttribute('aria-rowcount') ?? 0"
# A step of scrolling, to the frame after the next: what a user waits for.
SCROLLED = """(async () => {
  const box = document.querySelector('[data-table]'), frame = () => new Promise(requestAnimationFrame), found = [];
  for (let step = 0; step < 40; step++) {
    const begun = performance.now();
    box.scrollTop += box.clientHeight;
    await frame(); await frame();
    found.push(performance.now() - begun);
  }
  return found;
})()"""
# The same once, of a table or a log, as far as one notch of a wheel or a whole window goes.
STEP = """(async () => {
  const box = document.querySelector('%s'), frame = () => new Promise(requestAnimationFrame);
  box.scrollTop += %s;
  await frame(); await frame();
})()"""
NOTCH, WINDOW = "100", "box.clientHeight"
SWITCHED = """(async () => {
  const begun = performance.now();
  location.hash = '%s';
  while (document.querySelector('h1')?.textContent !== '%s') await new Promise((done) => setTimeout(done, 1));
  return performance.now() - begun;
})()"""


def main() -> None:
    browser = Browser()
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        server = world.start(Path(folder) / "home")
        try:
            world.furnish(server)
            paint, data = _first(browser, server)
            tab = _signed_in(browser, server, "#/main/overview", "Overview")
            switch, seen, heap = _switches(tab), _changes(tab, server), _heap(tab)
            tab.close()
            found = world.run(server, "ended")
            add_copies(server.data, found["id"], RUNS)
            scroll, shown, notch, window = _scroll(browser, server)
            log_notch, log_window = _log(browser, server)
        finally:
            server.close()
            browser.close()
    report(
        "console",
        first_paint_ms=paint,
        data_ms=data,
        switch_ms=switch,
        change_seen_ms=seen,
        scroll_step_ms=scroll,
        scroll_notch_work_ms=notch,
        scroll_window_work_ms=window,
        log_notch_work_ms=log_notch,
        log_window_work_ms=log_window,
        runs_shown_s=shown,
        heap_mb=heap,
    )


def _first(browser: Browser, server: Server) -> tuple[list[float], list[float]]:
    """From nothing to the first paint; and from signing in to the list of runs."""
    paint, data = list[float](), list[float]()
    for _ in range(ROUNDS):
        tab = browser.tab(server.url, first=True)
        tab.open("#/main/runs")
        tab.see(role="button", name="Sign in")
        paint.append(float(until("the paint", lambda tab=tab: tab.script(PAINTED))))  # type: ignore[misc]
        tab.fill("Token", server.token)
        begun = time.monotonic()
        tab.press("Sign in")
        tab.see("exited with status 3")
        data.append((time.monotonic() - begun) * 1000)
        tab.close()
    return paint, data


def _signed_in(browser: Browser, server: Server, place: str, heading: str) -> Tab:
    tab = browser.tab(server.url, first=True)
    tab.open(place)
    tab.sign_in(server.token)
    tab.heading(heading)
    tab.settled()
    return tab


def _switches(tab: Tab) -> list[float]:
    """Between pages whose scripts are there."""
    pages = (("runs", "Runs"), ("services", "Services"), ("events", "Events"), ("overview", "Overview"))
    for name, heading in pages:
        tab.go(f"#/main/{name}")
        tab.heading(heading)
    return [float(tab.script(SWITCHED % (f"#/main/{name}", heading))) for _ in range(ROUNDS) for name, heading in pages]


def _changes(tab: Tab, server: Server) -> list[float]:
    """From the answer to a submission until the run is in the list."""
    tab.go("#/main/runs")
    found = []
    for number in range(ROUNDS):
        world.apply(server, world.task(f"seen-{number}", "true"))
        begun = time.monotonic()
        tab.see(f"seen-{number}")
        found.append((time.monotonic() - begun) * 1000)
    return found


def _heap(tab: Tab) -> float:
    places = [f"#/main/{page}" for page in ("runs", "services", "services/chat", "runs/train", "events")]
    for place in places:
        tab.go(place)
    before = tab.ask("heap")
    for place in places * 20:
        tab.go(place)
    return round((int(tab.ask("heap")) - int(before)) / 2**20, 2)


def _scroll(browser: Browser, server: Server) -> tuple[list[float], float, list[float], list[float]]:
    """Steps of a window each through all runs; how long it takes until they are all there; and the work of steps."""
    tab = browser.tab(server.url, first=True)
    tab.open("#/main/runs")
    begun = time.monotonic()
    tab.sign_in(server.token)
    until("all runs", lambda: int(tab.script(ROWS)) > RUNS)
    shown = time.monotonic() - begun
    steps = [float(step) for step in tab.script(SCROLLED)]
    notch, window = (_work(tab, "[data-table]", far) for far in (NOTCH, WINDOW))
    tab.close()
    return steps, round(shown, 2), notch, window


def _log(browser: Browser, server: Server) -> tuple[list[float], list[float]]:
    printed = f"print('\\033[32mstep\\033[0m', number, 'of {LINES}, loss', number / 7)"
    world.apply(server, world.task("long", f'python3 -c "for number in range({LINES}): {printed}"'))
    world.wait(server, "long", "done")
    tab = _signed_in(browser, server, "#/main/runs/long?tab=logs", "long")
    tab.see(f"{LINES:,} lines, complete")
    tab.script("document.querySelector('.log-box').scrollTop = 1000")
    notch, window = (_work(tab, ".log-box", far) for far in (NOTCH, WINDOW))
    tab.close()
    return notch, window


def _work(tab: Tab, box: str, far: str) -> list[float]:
    found = []
    for _ in range(STEPS):
        before = tab.work()["all"]
        tab.script(STEP % (box, far))
        found.append(tab.work()["all"] - before)
    return found


if __name__ == "__main__":
    main()
