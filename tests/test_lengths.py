"""The lengths of time and the sizes that pages name are those of the code.

`5 minutes<!-- =chalicelib.domain.services.HISTORY*us -->`: a comment behind a length, which no reader sees, says what
of the code it repeats: numbers, units and dotted names, multiplied. `<!-- = -->` stands behind one that isn't the
code's. Every length that is written as a number has one or the other, but in generated pages, code and what commands
print.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import reduce
from importlib import import_module
from operator import mul
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from chalicelib.agent.gateway import nginx
from chalicelib.domain.specs.services import ProbeConfig
from chalicelib.planning.jobs.replica_groups import _filled
from chalicelib.planning.projects.subscriptions import FIRST_PAUSE, LONGEST_PAUSE, MOST
from chalicelib.usecases.pace import PER_CALL

DOCS = Path(__file__).parents[1] / "docs"
GENERATED = ("cli", "configuration", "differences", "errors", "json", "prometheus", "server-config")
PAGES = sorted(
    path
    for path in [*(DOCS / "guides").glob("*.md"), *(DOCS / "reference").glob("*.md"), DOCS / "security.md"]
    if path.stem not in GENERATED
)
OPERATED = sorted((DOCS / "operate").rglob("*.md"))  # whose lengths needn't all be marked
NUMBERS = {"a": 1, "an": 1, "one": 1, "half a": 0.5, "half an": 0.5, "fifteen": 15, "twenty": 20, "thirty": 30}
NUMBERS |= dict(two=2, three=3, four=4, five=5, six=6, seven=7, eight=8, nine=9, ten=10)
RATES = ("a", "an", "one")  # "requests a second", "in one second" needn't be lengths
UNITS = {"ms": 0.001, "s": 1, "second": 1, "min": 60, "minute": 60, "h": 3_600, "hour": 3_600, "d": 86_400}
UNITS |= {"day": 86_400, "week": 7 * 86_400, "month": 30 * 86_400, "year": 365 * 86_400, "byte": 1, "kilobyte": 2**10}
UNITS |= {"megabyte": 2**20, "KB": 2**10, "MB": 2**20, "GB": 2**30, "TB": 2**40}
OF_CODE = {"us": 1e-6, "d": 86_400, "MiB": 2**20, "GiB": 2**30}  # in which constants are
AMOUNT = re.compile(
    rf"(?<![\w$.,/])(?:(?P<figures>\d[\d,.]*)(?:-|\s*)"
    rf"|(?P<word>{'|'.join(sorted(NUMBERS, key=len, reverse=True))})(?:-|\s+))"
    rf"(?P<unit>{'|'.join(UNITS)})s?\b(?:<!-- =(?P<source>[^ ]*) -->)?"
)
TOLERANCE = 0.1  # how far off is what a page calls "about" something
PROBE = _filled(ProbeConfig(type="http"))


def quiet_pause() -> float:
    return PER_CALL.pause(changing=False, since=0)


def buffered() -> float:
    """Bytes of a body that a gateway's nginx keeps in memory."""
    conf = Path(nginx.__file__).with_name("nginx.conf").read_text()
    return int(re.findall(r"^    client_body_buffer_size (\d+)m;", conf, re.MULTILINE)[0]) * 2**20


def silent() -> float:
    """Seconds after which a gateway's nginx gives up connections to a host that doesn't acknowledge."""
    lua = Path(nginx.__file__).with_name("lua").joinpath("dead_hosts.lua").read_text()
    (found,) = re.findall(r"^local IDLE, EVERY, PROBES = (\d+), (\d+), (\d+)", lua, re.MULTILINE)
    idle, every, probes = map(int, found)
    return idle + every * probes


def pauses() -> float:
    """From a webhook's first failure to its last."""
    return sum(min(LONGEST_PAUSE, FIRST_PAUSE * 2**number) for number in range(MOST - 1)) / 1e6


def amount(found: re.Match[str]) -> float:
    number = float(found["figures"].replace(",", "")) if found["figures"] else NUMBERS[found["word"]]
    return number * UNITS[found["unit"]]


def value(source: str) -> float:
    """Of a product of numbers, units and names."""
    return reduce(mul, map(_factor, source.split("*")))


def _factor(text: str) -> float:
    if text in OF_CODE or re.fullmatch(r"[\d.]+", text):
        return OF_CODE.get(text) or float(text)
    found = _named(text)
    if callable(found):
        found = found()
    if isinstance(found, str):  # a schedule: `rate(10 minutes)`
        (every,) = AMOUNT.finditer(found)
        return amount(every)
    return float(found)


def _named(path: str) -> Any:
    names = path.split(".")
    for depth in range(len(names), 0, -1):
        try:
            found: Any = import_module(".".join(names[:depth]))
        except ModuleNotFoundError:
            continue
        return reduce(_inside, names[depth:], found)
    raise AssertionError(f"there is no {path}")


def _inside(of: Any, name: str) -> Any:
    """An attribute; the default of a model's field; an item by its place or its name."""
    if isinstance(of, type) and issubclass(of, BaseModel) and name in of.model_fields:
        return of.model_fields[name].get_default(call_default_factory=True)
    if isinstance(of, tuple | list) and not hasattr(of, name):
        return of[int(name)] if name.lstrip("-").isdigit() else next(each for each in of if each.name == name)
    return getattr(of, name)


def lengths(text: str) -> Iterator[re.Match[str]]:
    """Those in what a person wrote: not in code, nor in what a page's commands print."""
    code = [found.span() for found in re.finditer(r"```.*?```|`[^`]*`", text, re.DOTALL)]
    for found in AMOUNT.finditer(text):
        if not any(first <= found.start() < last for first, last in code):
            yield found


def wrong(text: str) -> Iterator[str]:
    for found in lengths(text):
        source = found["source"]
        around = " ".join(text[max(0, found.start() - 40) : found.end() + 30].split())
        approximate = text[: found.start()].split()[-1:] == ["about"]
        if source is None and (found["figures"] or found["word"] not in RATES):
            yield f"a marker says what it repeats: {around}"
        elif source and amount(found) != pytest.approx(value(source), rel=TOLERANCE if approximate else 1e-9):
            yield f"{source} is {value(source):g}: {around}"


@pytest.mark.parametrize("page", [*PAGES, *OPERATED], ids=lambda page: page.stem)
def test_a_page_says_what_the_code_does(page: Path) -> None:
    text = page.read_text()
    assert [each for each in wrong(text) if page in PAGES or not each.startswith("a marker")] == []
    assert text.count("<!-- =") == sum(found["source"] is not None for found in lengths(text)), "behind no length"


def test_a_wrong_one_is_found() -> None:
    name = "chalicelib.domain.services.HISTORY*us"
    assert (
        list(wrong(f"for 5 minutes<!-- ={name} -->, 300 s<!-- ={name} -->, about 310 s<!-- ={name} -->, `6 s`")) == []
    )
    assert len(list(wrong(f"for 6 minutes<!-- ={name} -->, then 2 s"))) == 2


def test_lengths_are_read_as_they_are_written() -> None:
    text = "1,500 ms, half an hour, ten-minute pauses, $5 a month, 64TB, 3 days, a sound, v2s, 2.5 s"
    day = 86_400
    assert [amount(found) for found in lengths(text)] == [1.5, 1_800, 600, 30 * day, 64 * 2**40, 3 * day, 2.5]
