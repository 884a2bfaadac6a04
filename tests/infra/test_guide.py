"""`docs/guides/aws.md`: its commands are taken as they stand there, and do what it says."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from chalicelib.backends.registry import artefacts
from infra import command, packaging, spending, stateless
from infra.artefacts import KINDS, Artefact
from infra.functions import FUNCTIONS
from tests.e2e.aws import journey
from tests.scenarios.guides import AWS, ROOT
from tests.scenarios.texts import TEXTS

GUIDE = next(path for path in AWS if path.stem == "aws").read_text()
LINES = [line for block in re.findall(r"```shell\n(.*?)```", GUIDE, re.DOTALL) for line in block.splitlines()]
MAKE = [line for line in LINES if line.startswith("make ")]


@pytest.mark.parametrize("line", MAKE)
def test_make_passes_on_what_the_guide_says(line: str) -> None:
    args = shlex.split(line)
    shown = subprocess.run(
        [*args, "-n", "-o", ".venv/.dev"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    (run,) = (shlex.split(each) for each in shown.splitlines() if "infra." in each)
    parser = command.parser("infra.x", "")
    command.choices(parser)
    given = parser.parse_args(run[3:])
    assert (run[2], given.stage) == (f"infra.{args[1]}", "dev")
    assert given.region == ("eu-west-1" if "REGION=eu-west-1" in args else None)
    if "BastionSubnets" in line:
        assert command.pairs(given.set, "--set", "A=1") == {
            "BastionSubnets": "subnet-1,subnet-2",
            "BastionSecurityGroups": "sg-1",
        }


def test_parameters_that_the_pages_set_are_the_stacks() -> None:
    pages = [path.read_text() for path in (ROOT / "docs").rglob("*.md")]
    # A value of the Helm chart begins with a small letter.
    parameters = {name for page in pages for name in re.findall(r"--set ([A-Z]\w*)=", page)}
    assert "Bus" in parameters and parameters <= {*stateless.template("dev")["Parameters"], *spending.parameters()}


def test_it_is_said_of_each_function_what_an_event_does_that_comes_twice() -> None:
    page = (ROOT / "docs" / "internals" / "functions.md").read_text()
    rows = re.findall(r"^\| (`[a-z_`, ]+`) \|", page, re.MULTILINE)
    assert sorted(re.findall("[a-z_]+", " ".join(rows))) == sorted(function.name for function in FUNCTIONS)


def test_every_scenario_is_played_on_the_deployed_functions_or_the_guide_says_why_not() -> None:
    played = [*journey.ALONE, *journey.SCRIPTS, *journey.WAITING, *journey.ELSEWHERE]
    assert sorted(played) == sorted(path.stem for path in TEXTS)
    page = (ROOT / "docs" / "internals" / "functions.md").read_text()
    assert all(f"`{name}` isn't" in page for name in journey.ELSEWHERE)


@pytest.mark.slow
def test_what_plays_them_imports_no_handler() -> None:
    script = "import sys, tests.e2e.aws.__main__; print(*{name.partition('.')[0] for name in sys.modules})"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert "tests" in loaded and not loaded & {"app", "functions"}


def test_the_guide_deploys_upgrades_and_removes() -> None:
    assert [line.split()[1] for line in MAKE] == ["deploy", "deploy", "deploy", "destroy"]
    assert f"python -m {packaging.__name__} prod out" in LINES


@pytest.mark.slow
def test_a_pipeline_gets_templates_and_the_zips_that_they_name(tmp_path: Path) -> None:
    """With zips that were built before: what is in them is pip's to fetch."""

    def built(chalice_zip: Path) -> dict[str, Artefact]:
        assert chalice_zip.exists()
        for name in KINDS:
            (tmp_path / name).write_bytes(b"zip")
        return {name: Artefact(name, tmp_path / name, "d", 3, 3) for name in KINDS}

    packaging.write("prod", tmp_path / "out", {"DSTACK_RETAIN_EVENTS": "9"}, built)
    template = json.loads((tmp_path / "out" / "template.json").read_text())
    properties = [one["Properties"] for one in template["Resources"].values()]
    named = {one.get("CodeUri") or one.get("Code") for one in properties if "Handler" in one}
    assert named == {"./deployment.zip", "./ssh.zip", *(f"./{each}.zip" for each in artefacts())}
    variables = [one["Environment"]["Variables"] for one in properties if "Handler" in one]
    assert all(each["DSTACK_RETAIN_EVENTS"] == "9" for each in variables) and len(variables) == len(FUNCTIONS)
    assert all((tmp_path / "out" / name).read_bytes() == b"zip" for name in named)
    assert "Table" in json.loads((tmp_path / "out" / "data.json").read_text())["Resources"]
    assert "SpendingBudget" in json.loads((tmp_path / "out" / "spending.json").read_text())["Resources"]
    assert zipfile.is_zipfile(tmp_path / "out" / "agent.pyz"), "no function may publish what agents run but one"
