"""A browser for tests, in the words of somebody who looks at a page and presses what it shows.

One Chromium serves all tests of a session; each test has a tab with a storage of its own. When the test ends, the tab
may have asked no other host, broken no policy, and its scripts may have reported no error.
"""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, Literal

import pytest

from chalicelib.console import bundle
from tests.harness.server import PATIENCE, ROOT, until

HOME = ROOT / ".venvs" / "console"
DRIVER = Path(__file__).with_name("driver.mjs")
FOCUSED = """(() => {
  const e = document.activeElement;
  const name = e.getAttribute('aria-label') ?? (e.labels?.[0] ?? e).textContent.trim().slice(0, 80);
  return `${e.getAttribute('role') ?? e.tagName.toLowerCase()} ${name}`;
})()"""
CONTRAST = "color-contrast"  # the only rule of axe that a theme can break
Found = dict[str, Any]  # an element by its role and name, its label, its text or its markup, as the driver has it


class Browser:
    """Chromium, and the program that drives it."""

    def __init__(self) -> None:
        self._ids = count()
        self._process = subprocess.Popen(
            ["node", str(DRIVER)], cwd=HOME, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.version = self._read()["version"]

    def ask(self, op: str, **asked: Any) -> Any:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"id": next(self._ids), "op": op, **asked}) + "\n")
        self._process.stdin.flush()
        answer = self._read()
        if "error" in answer:
            raise AssertionError(answer["error"])
        return answer["value"]

    def _read(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise AssertionError(f"the browser's driver ended with {self._process.wait(PATIENCE)}")
        return json.loads(line)

    def tab(self, url: str, **options: Any) -> Tab:
        tab = Tab(self, next(self._ids), url)
        self.ask("tab", tab=tab.number, origin=url, **options)
        return tab

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(PATIENCE)


@dataclass
class Tab:
    browser: Browser
    number: int
    url: str
    # Parts of messages that are no mistakes: the plan of a text that isn't right yet is refused.
    allowed: list[str] = field(default_factory=lambda: ["/spec?dry_run=true", "/runs?dry_run=true"])

    def ask(self, op: str, **asked: Any) -> Any:
        try:
            return self.browser.ask(op, tab=self.number, **asked)
        except AssertionError as failed:
            raise AssertionError(f"{failed}\n\n{self._state()}") from None

    def _state(self) -> str:
        """What there is to see, for a test that fails."""
        try:
            at, text = (
                self.browser.ask(op, tab=self.number, **on) for op, on in (("url", {}), ("text", {"css": "body"}))
            )
            problems = self.browser.ask("problems", tab=self.number)
        except AssertionError as failed:
            return f"(nothing to see: {failed})"
        return f"{at}\n{text[:4000]}\n{problems}"

    # --- going somewhere ---------------------------------------------------------------------------------------------

    def open(self, place: str = "") -> None:
        """To a place in the console, `#/main/runs` for instance, or to another path of the server."""
        path = place if place.startswith("/") else f"/{place}"
        self.ask("open", url=self.url + path)

    def go(self, place: str) -> None:
        """To a place in the console, until it shows what there is."""
        self.open(place)
        self.settled()

    def settled(self) -> None:
        """Waits until the page has got what it asked for."""
        self.ask("settled")

    def sign_in(self, token: str) -> None:
        """As somebody does who has a token."""
        self.fill("Token", token)
        self.press("Sign in")
        self.see(role="heading", name="Overview") if self.place() == "/" else self.see(role="navigation", name="Pages")

    def place(self) -> str:
        """Where it is: what follows the server's address."""
        return str(self.ask("url")).removeprefix(self.url)

    # --- reading -----------------------------------------------------------------------------------------------------

    def see(self, text: str | None = None, **found: Any) -> None:
        """Waits until the element is shown."""
        self.ask("see", **_element(text, found))

    def gone(self, text: str | None = None, **found: Any) -> None:
        self.ask("gone", **_element(text, found))

    def heading(self, name: str) -> None:
        self.see(role="heading", name=name)

    def row(self, name: str) -> Found:
        """The row of a table with this text."""
        return {"role": "row", "has": name}

    def count(self, **found: Any) -> int:
        return int(self.ask("count", **found))

    def text(self, **found: Any) -> str:
        return str(self.ask("text", **found))

    def texts(self, **found: Any) -> list[str]:
        return list(self.ask("texts", **found))

    def value(self, label: str) -> str:
        return str(self.ask("value", label=label, exact=False))

    def attribute(self, attribute: str, **found: Any) -> str | None:
        value: str | None = self.ask("attribute", attribute=attribute, **found)
        return value

    def shows(self, text: str, **found: Any) -> None:
        """Waits until the element, the page's body unless one is named, has this text somewhere."""
        where = found or {"css": "body"}
        until(f"{text!r} in {where}", lambda: text in self.text(**where), every=0.1)

    # --- doing -------------------------------------------------------------------------------------------------------

    def press(self, name: str, role: str = "button", **found: Any) -> None:
        self.ask("press", role=role, name=name, **found)

    def follow(self, name: str, **found: Any) -> None:
        self.press(name, "link", **found)

    def click(self, **found: Any) -> None:
        self.ask("press", **found)

    def fill(self, label: str, text: str, **found: Any) -> None:
        self.ask("fill", **({"label": label, "exact": False, **found}), text=text)

    def point(self, share: float, to: float | None = None, **found: Any) -> None:
        """Moves the pointer over a share of an element's width; up to another share, it drags."""
        self.ask("point", **found, **{"from": share} | ({} if to is None else {"to": to, "drag": True}))

    def choose(self, label: str, option: str, **found: Any) -> None:
        self.ask("choose", label=label, option=option, **found)

    def keys(self, *keys: str) -> None:
        self.ask("keys", keys=list(keys))

    def type(self, text: str) -> None:
        self.ask("type", text=text)

    def focused(self) -> str:
        """The element that has the focus: its role or tag, and its name."""
        return str(self.script(FOCUSED))

    def tab_to(self, name: str, limit: int = 200) -> None:
        """Moves the focus with the Tab key until it is on the element whose name begins so."""
        for _ in range(limit):
            self.keys("Tab")
            if self.focused().partition(" ")[2].startswith(name):
                return
        raise AssertionError(f"{limit} times Tab didn't come to {name!r}; the focus is on {self.focused()!r}")

    # --- the browser itself ------------------------------------------------------------------------------------------

    def script(self, expression: str) -> Any:
        return self.ask("script", expression=expression)

    def axe(self, *rules: str) -> list[Any]:
        """What the checker of accessibility finds fault with, by these rules or by all."""
        return list(self.ask("axe", **({"rules": rules} if rules else {})))

    def offline(self, offline: bool = True) -> None:
        """As if the network were gone."""
        self.ask("offline", offline=offline)

    def resize(self, width: int, height: int) -> None:
        self.ask("resize", width=width, height=height)

    def theme(self, theme: Literal["light", "dark"]) -> None:
        self.ask("theme", theme=theme)

    def hide(self, hidden: bool = True) -> None:
        """As if somebody looked at another tab."""
        self.ask("hide", hidden=hidden)

    def pass_time(self, seconds: int, step: int = 5) -> None:
        """Time passes for the page, if its tab was made with a `clock`."""
        self.ask("pass", seconds=seconds, step=step)

    def picture(self, path: Path) -> None:
        """What the window shows, as WebP."""
        self.ask("picture", path=str(path))

    def work(self) -> dict[str, float]:
        """Milliseconds of CPU that the page's main thread has taken so far: for scripts, style, layout, and in all."""
        return dict(self.ask("work"))

    def loaded(self) -> dict[str, int]:
        """Files of the console that have come, and how many bytes they were on the way."""
        came = [(each["name"].removeprefix(self.url).partition("#")[0], each["encoded"]) for each in self.ask("bytes")]
        return {name: size for name, size in came if not name.startswith("/api/")}

    def asked(self, start: str = "/api/") -> list[str]:
        """The calls that it has made, without their queries."""
        paths = [(each["method"], each["url"].removeprefix(self.url)) for each in self.ask("requests")]
        return [f"{method} {path.partition('?')[0]}" for method, path in paths if path.startswith(start)]

    def sideways(self) -> int:
        """How many pixels the page as a whole is wider than the window."""
        return int(self.script("document.scrollingElement.scrollWidth - innerWidth"))

    def close(self) -> None:
        """Ends the tab, and says what went wrong in it."""
        problems = self.browser.ask("close", tab=self.number)
        wrong = [each for each in problems if not any(part in each for part in self.allowed)]
        assert wrong == [], "\n".join(wrong)


def _element(text: str | None, found: Found) -> Found:
    return {"text": text, "exact": False, **found} if text is not None else found


def needed() -> None:
    wanted = (HOME / ".installed", HOME / "node_modules" / "axe-core", ROOT / bundle.TOOLS / ".installed")
    if missing := [path for path in wanted if not path.exists()]:
        pytest.skip(f"{missing[0].relative_to(ROOT)} isn't installed here; `make test` installs it")
