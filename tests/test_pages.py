"""The pages that a newcomer opens first: their links lead somewhere, and their figures are the recorded ones."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path

import pytest

from tests.harness.rows import each
from tests.harness.server import ROOT

README = ROOT / "README.md"
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")]
TARGETS = set(re.findall(r"(?m)^([a-z][a-z0-9-]*):", (ROOT / "Makefile").read_text()))


@cache
def prose(page: Path) -> str:
    return re.sub(r"(?ms)^```.*?^```", "", page.read_text(encoding="utf-8"))


@cache
def anchors(page: Path) -> set[str]:
    """The anchors of its headings, as GitHub makes them, and those that it names itself."""
    headings = re.findall(r"(?m)^#+ (.*)$", prose(page))
    made = {re.sub(r"[^\w\- ]", "", re.sub(r"\]\(.*?\)", "", each)).lower().replace(" ", "-") for each in headings}
    return made | set(re.findall(r'<a id="(\S+?)">', prose(page)))


@each("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
@pytest.mark.slow
def test_its_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if re.match(r"https?:", target):
            continue
        name, _, anchor = target.partition("#")
        found = (page.parent / name).resolve() if name else page
        assert found.exists() and found.is_relative_to(ROOT), target
        assert not anchor or anchor in anchors(found), target


@each("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_targets_of_make_that_it_names_exist(page: Path) -> None:
    named = re.findall(r"(?:`|^)make ([a-z][a-z0-9-]*)", page.read_text(encoding="utf-8"), re.MULTILINE)
    assert set(named) <= TARGETS


@each("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_files_that_it_names_exist(page: Path) -> None:
    folders = "chalicelib|cli|docs|examples|functions|infra|tests"
    named = re.findall(rf"(?<![\w/.*-])((?:{folders})/[\w/.-]*\.\w+)", page.read_text(encoding="utf-8"))
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_the_index_leads_to_every_page() -> None:
    index = ROOT / "docs" / "README.md"
    linked = {(index.parent / name).resolve() for name in re.findall(r"\]\(([^)#\s]+)", prose(index))}
    assert {page for page in PAGES if page.is_relative_to(ROOT / "docs")} - {index} <= linked


def test_what_stands_beside_the_peer_was_measured() -> None:
    """Two digits of the medians in `docs/peer.json`, which `make bench-peer RECORD=1` writes."""
    figures = json.loads((ROOT / "docs" / "peer.json").read_text())["figures"]
    rows = {
        "an idle server, CPU": ("idle_core_percent", 1, "% of a core"),
        "an idle server, memory": ("idle_rss_mb", 1, "MB"),
        "a server's start to its first answer, CPU": ("first_answer_cpu_ms", 0.001, "s"),
        "`dstack ps`, CPU": ("ps_cpu_ms", 0.001, "s"),
        "`dstack --help`, CPU": ("help_cpu_ms", 0.001, "s"),
    }
    for name, (key, scale, unit) in rows.items():
        own, peers = (
            two_digits(figures[each][key]["median"] * scale) for each in ("dstack-serverless", "dstack 0.22.5")
        )
        assert f"| {name} | {own} {unit} | {peers} {unit} | `make bench-peer` |" in README.read_text()
    assert README.read_text().count("| `make bench-peer` |") == len(rows)


def two_digits(value: float) -> str:
    return f"{float(f'{value:.2g}'):.0f}" if value >= 10 else f"{value:#.2g}"


def test_a_month_without_machines_costs_what_the_page_on_costs_says() -> None:
    (month,) = re.findall(r"(?m)^\| 0 \| 0 \| ([\d.]+) \|", (ROOT / "docs/guides/aws-costs.md").read_text())
    assert f"| a month without machines | ${month} in AWS, " in README.read_text()


def test_it_has_as_many_types_of_backend_as_are_built() -> None:
    from chalicelib.backends.registry import BACKENDS

    built = [name for name, row in BACKENDS.items() if row.backend]
    assert f"| types of backend | {len(built)}: `{'`, `'.join(built)}` |" in README.read_text()


def test_the_readme_shows_the_picture_and_says_how_it_was_made() -> None:
    assert "](docs/terminal.svg)" in README.read_text() and "make picture" in README.read_text()


def test_from_nothing_to_a_task_in_ten_lines() -> None:
    blocks = re.findall(r"```shell\n(.*?)```", README.read_text(), re.DOTALL)
    assert len(blocks) == 2 and all(len(block.splitlines()) <= 10 for block in blocks)


def test_the_diagram_names_packages_of_the_control_plane() -> None:
    (diagram,) = re.findall(r"```mermaid\n(.*?)```", README.read_text(), re.DOTALL)
    (plane,) = re.findall(r"subgraph plane\[.*?\]\n(.*?)  end", diagram, re.DOTALL)
    nodes = re.findall(r"(?m)^    (\w+)[\[(]", plane)
    assert nodes and all((ROOT / "chalicelib" / node / "__init__.py").exists() for node in nodes)
