"""A use case's signature says which ports it needs, so none takes the whole plane."""

from __future__ import annotations

import re
from pathlib import Path

import chalicelib.usecases
from chalicelib.usecases import ports
from chalicelib.usecases.context import Plane

FOLDER = Path(chalicelib.usecases.__file__).parent
EXCEPTIONS = {
    "context.py",  # it defines the plane
    "keyed_requests.py",  # it makes a copy of the plane, whose first commit records that the request is done
    "rehearsals.py",  # it makes a copy of the plane that writes nothing
    "runs/rule_actions.py",  # it makes a copy of the plane, whose first commit records that the rule has acted
}


def takes_all(source: str) -> bool:
    return re.search(r"\bPlane\b(?!`)", source) is not None


def test_no_use_case_takes_the_whole_plane() -> None:
    sources = {str(path.relative_to(FOLDER)): path.read_text() for path in FOLDER.rglob("*.py")}
    assert len(sources) > 50, "not all of the code was read"
    assert {name for name, source in sources.items() if takes_all(source)} == EXCEPTIONS


def test_one_that_does_is_found() -> None:
    assert takes_all("def stop(plane: Plane, name: str) -> None: ...")
    assert not takes_all("def stop(plane: ChangePorts, name: str) -> None: ...")
    assert not takes_all('"""`Plane` has all of them."""')


def test_every_group_consists_of_ports_of_the_plane() -> None:
    groups = {group for name, group in vars(ports).items() if name.endswith("Ports")}
    grouped = {name for group in groups for each in group.__mro__ for name in vars(each) if not name.startswith("_")}
    assert len(groups) > 9 and grouped <= {*Plane.__dataclass_fields__, "read", "committer"}
