"""Runs `chalice package` in a folder of its own: the API's zip, and the template of everything.

It needs its own folder, because Chalice packs whatever lies beside `app.py`, and because a stage's `.chalice` is
generated there. The one in the repository is for direct use of Chalice. Chalice doesn't install the functions'
packages: `artefacts` installs them once, from the lock, by hash.

`python -m infra.packaging STAGE FOLDER` writes the templates, the zips and the agent, for deploying them in another
way.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from chalicelib.agent.program.build import build as agent
from chalicelib.console.bundle import shipped
from chalicelib.domain.owner import ANY
from chalicelib.errors import Bug
from infra import artefacts, installed, spending, stateful, stateless
from infra.account import checked
from infra.artefacts import Artefact
from infra.functions import CHALICE, files
from infra.requirements import ROOT
from infra.stateless import Choices

_NOT_CODE = shutil.ignore_patterns("__pycache__")


@dataclass(frozen=True)
class Packer:
    folder: Path
    stage: str

    def zip(self) -> Path:
        """The API's zip, without the packages that it needs."""
        return self._packaged / "deployment.zip"

    def template(self, chosen: Choices) -> dict[str, Any]:
        """Chalice's template, with the stateless stack's merged into it."""
        chalices = json.loads((self._packaged / "sam.json").read_text())
        template: dict[str, Any] = merged(stateless.template(self.stage, chosen), chalices)
        return {**template, "Resources": bound(template["Resources"])}

    @cached_property
    def _packaged(self) -> Path:
        chalice = str(Path(sys.executable).with_name("chalice"))
        done = subprocess.run(
            [chalice, "package", "--stage", self.stage, "out"],
            cwd=self.folder,
            env={"AWS_DEFAULT_REGION": "us-east-1", **os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise Bug(f"`chalice package` failed: {(done.stdout + done.stderr).strip()[-800:]}")
        return self.folder / "out"


def merged(ours: Any, chalices: Any) -> Any:
    """As `chalice package --merge-template` merges, which would pack everything once more for it."""
    if not (isinstance(ours, dict) and isinstance(chalices, dict)):
        return ours
    return chalices | {name: merged(part, chalices.get(name)) for name, part in ours.items()}


def bound(part: Any) -> Any:
    """Limits a policy's condition on our tag to this stage's id, in Chalice's policies as in ours."""
    if isinstance(part, dict):
        return {name: {"Ref": "InstallId"} if value == ANY else bound(value) for name, value in part.items()}
    return [bound(each) for each in part] if isinstance(part, list) else part


@contextmanager
def packer(stage: str, variables: Mapping[str, str]) -> Iterator[Packer]:
    with tempfile.TemporaryDirectory(prefix="dstack-package-") as temporary:
        folder = Path(temporary)
        shutil.copy(ROOT / "app.py", folder)
        for name in ("chalicelib", "functions", "vendor"):
            shutil.copytree(ROOT / name, folder / name, symlinks=True, ignore=_NOT_CODE)
        bundle_console(folder / "chalicelib" / "console")
        (folder / "requirements.txt").touch()
        for path, text in files(stage, variables).items():
            (folder / ".chalice" / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / ".chalice" / path).write_text(text)
        yield Packer(folder, stage)


def bundle_console(console: Path) -> None:
    """Replaces its sources in the copy by what is shipped of them."""
    files = shipped(console, ROOT, print)
    shutil.rmtree(console)
    for name, content in files.items():
        (console / name).parent.mkdir(parents=True, exist_ok=True)
        (console / name).write_bytes(content)


Builder = Callable[[Path], Mapping[str, Artefact]]


def write(stage: str, into: Path, variables: Mapping[str, str], build: Builder = artefacts.build) -> None:
    into.mkdir(parents=True, exist_ok=True)
    with packer(stage, variables) as packed:
        for name, artefact in build(packed.zip()).items():
            shutil.copy(artefact.path, into / f"{'deployment' if name == CHALICE else name}.zip")
        (into / "template.json").write_text(json.dumps(packed.template(Choices(variables=variables)), indent=2))
    (into / "data.json").write_text(json.dumps(stateful.template(), indent=2))
    (into / "spending.json").write_text(json.dumps(spending.template(stage), indent=2))
    (into / "agent.pyz").write_bytes(agent())


if __name__ == "__main__":
    write(checked(sys.argv[1]), Path(sys.argv[2]), installed.variables())
