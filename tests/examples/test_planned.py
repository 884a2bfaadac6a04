"""Every configuration under `examples` is read, planned against what each backend sells, and named in the index.

The table of which backends have an offer is a part of `examples/README.md`; `GOLDEN=write` writes it anew.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from chalicelib.configuration.parse import Configuration, parse
from chalicelib.domain.specs.fleets import FleetConfiguration, FleetSpec
from chalicelib.domain.specs.gateways import GatewayConfiguration
from chalicelib.domain.specs.runs import RunSpec
from chalicelib.domain.specs.volumes import VolumeConfiguration
from chalicelib.planning.jobs.jobs import job_specs
from chalicelib.planning.matching.offer_book import OfferBook
from chalicelib.planning.matching.requirements import requirements_of
from chalicelib.planning.placing.plan_offers import fleet_offers, plan_offers
from chalicelib.planning.runs.field_support import refusals
from tests.examples.catalogues import Sold, catalogues
from tests.harness import golden
from tests.harness.server import ROOT
from tests.world import nouns as b
from tests.world.nouns import Images

EXAMPLES = ROOT / "examples"
INDEX = EXAMPLES / "README.md"
BEGIN, END = "<!-- offers: `GOLDEN=write` writes this table -->\n", "<!-- /offers -->\n"
FILES = sorted(EXAMPLES.rglob("*.dstack.yml"))
NAMES = [str(path.relative_to(EXAMPLES)) for path in FILES]
LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")


@cache
def read(path: Path) -> Configuration:
    return parse(path.read_text(encoding="utf-8"), filename=path.name)


def run_of(config: Configuration) -> RunSpec:
    return RunSpec.model_validate({"run_name": config.name or "run", "configuration": config.model_dump()})


def offered(config: Configuration, name: str, sold: Sold) -> bool:
    """Whether this backend has a machine for each job, or for the fleet, or has such volumes."""
    offers, facts = sold
    book = OfferBook(offers)
    if isinstance(config, VolumeConfiguration):
        return config.backend == name
    if isinstance(config, FleetConfiguration):
        cluster = config.placement == "cluster"
        buys = not config.ssh_config and (facts.multinode or not cluster)
        return buys and bool(fleet_offers(FleetSpec(configuration=config), book, 1)[1])
    spec = run_of(config)
    jobs = job_specs(spec, images=Images())
    side_by_side = any(job.networked or job.jobs_per_replica > 1 for job in jobs)
    placement = "cluster" if side_by_side else "any"
    view = b.view(b.fleet("any"), nodes="0..", placement=placement, spot_policy="auto")
    found = [plan_offers(requirements_of(spec, job), [view], book, 1, facts={name: facts})[1] for job in jobs]
    return all(found)


def row(path: Path) -> str:
    found = {name: offered(read(path), name, sold) for name, sold in catalogues().items()}
    marks = " | ".join("✓" if has else "" for has in found.values())
    return f"| [{path.relative_to(EXAMPLES)}]({path.relative_to(EXAMPLES)}) | {marks} |"


def table() -> str:
    of_one = EXAMPLES / "clusters"  # each folder in it is for one network, and planned in `test_clusters.py`
    wanted = [path for path in FILES if of_one not in path.parent.parents]
    files = [path for path in wanted if not isinstance(read(path), GatewayConfiguration)]
    head = f"| | {' | '.join(catalogues())} |\n|---|{'---|' * len(catalogues())}\n"
    return head + "".join(row(path) + "\n" for path in files)


@pytest.mark.slow
def test_the_index_says_which_backends_have_an_offer_for_what() -> None:
    text = INDEX.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    after = rest.partition(END)[2]
    assert rest and after is not rest, "the index has no place for the table"
    golden.check(INDEX, f"{before}{BEGIN}{table()}{END}{after}")


@pytest.mark.parametrize("name", NAMES)
def test_nothing_of_it_is_refused(name: str) -> None:
    config = read(EXAMPLES / name)
    if isinstance(config, FleetConfiguration | VolumeConfiguration | GatewayConfiguration):
        return
    told = [each for each in refusals(run_of(config)) if each.code != "unset-variable"]  # that is for who applies it
    assert told == []


@pytest.mark.parametrize("name", NAMES)
def test_what_it_brings_along_is_there(name: str) -> None:
    for each in getattr(read(EXAMPLES / name), "files", ()):
        assert (EXAMPLES / name).parent.joinpath(each.local_path).exists(), each


@pytest.mark.parametrize("name", NAMES)
def test_its_image_and_packages_have_versions(name: str) -> None:
    """What runs today runs tomorrow."""
    text = (EXAMPLES / name).read_text(encoding="utf-8")
    for image in re.findall(r"(?m)^ *image: (\S+)", text):
        path, _, tag = image.rpartition(":")
        assert path and (tag != "latest" or re.search(r"\d+\.\d+", path)), image
    for line in re.findall(r"pip install (.*)", text):
        for package in re.sub(r"(?<!\S)-\S+|\"", "", line).split():
            assert "==" in package, package


def pages() -> Iterator[Path]:
    yield from sorted(EXAMPLES.rglob("*.md"))


def test_every_page_is_reached_from_the_index_and_every_link_leads_somewhere() -> None:
    reached, ahead = {INDEX}, [INDEX]
    while ahead:
        page = ahead.pop()
        for link in LINK.findall(page.read_text(encoding="utf-8")):
            there = (page.parent / link).resolve()
            assert there.exists(), f"{page.relative_to(ROOT)}: {link}"
            if there.suffix == ".md" and there.is_relative_to(EXAMPLES) and there not in reached:
                reached.add(there)
                ahead.append(there)
    assert sorted(reached) == sorted(pages())


@pytest.mark.parametrize("path", list(pages()), ids=lambda path: str(path.relative_to(EXAMPLES)))
def test_it_applies_files_that_exist(path: Path) -> None:
    for file in re.findall(r"apply -f (examples/\S+)", path.read_text(encoding="utf-8")):
        assert (ROOT / file).exists(), file
