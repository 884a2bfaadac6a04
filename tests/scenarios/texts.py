"""Which scripts there are, and what it means to play one."""

from __future__ import annotations

from pathlib import Path

from chalicelib.backends.simulated.cloud import FACTS
from tests.harness import golden
from tests.scenarios.script import Stage, parse, play, render
from tests.world.site import SELLS_CONTAINERS

FOLDER = Path(__file__).parent / "scripts"
TEXTS = sorted(FOLDER.glob("*.txt"))
SHELL = ("env", "files", "max-duration", "repos", "stop")  # what they show is done by real processes only
REAL = ("hello", *SHELL)
SCRIPTS = [path for path in TEXTS if path.stem not in SHELL]
CLOUDS = {"volumes": "aws", "containers": SELLS_CONTAINERS}  # the type that the simulated cloud stands in for there


def cloud_of(name: str) -> str:
    return CLOUDS.get(name, FACTS.name)


def check(path: Path, stage: Stage, *, renew: bool = False) -> None:
    """Play it: the outputs must be those of the text, or become them."""
    got = render(play(parse(path.read_text()), stage))
    golden.check(path, got, write=renew)
