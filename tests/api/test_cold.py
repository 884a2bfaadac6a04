"""What a fresh process loads and builds before a request needs it. Names, never times: `make bench` has those."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.api.rig import ADMIN, Rig, task

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
UNLOADED = ("agent", "backends", "catalog", "configuration", "domain.specs", "machines", "planning", "usecases.runs")
REPORT = """
import json, sys
def report():
    from pydantic import BaseModel
    kinds = [BaseModel]
    for kind in kinds:
        kinds += kind.__subclasses__()
    built = [kind.__name__ for kind in kinds[1:] if kind.__pydantic_complete__]
    print(json.dumps({"modules": sorted(sys.modules), "built": sorted(set(built))}))
"""
CALL = """
from pathlib import Path
from chalicelib.api import dispatch
from tests.world.plane import World
class Empty:
    def book(self, project_id):
        from chalicelib.planning.matching.offer_book import OfferBook
        return OfferBook((), 0)
    def ages(self, project_id):
        return {}
plane = World.in_folder(Path(sys.argv[1]), catalog=Empty()).plane
def ask(path, body=b""):
    headers = {"authorization": "Bearer " + sys.argv[2]}
    reply = dispatch.answer(plane, dispatch.Request("POST", path, {}, headers, body))
    assert reply.status == 200, reply.body
"""


def seen(script: str, *arguments: str) -> tuple[set[str], set[str]]:
    """The modules that a fresh process has loaded after `script`, and the models it has built."""
    command = [sys.executable, "-c", f"{REPORT}{script}\nreport()", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    return set(found["modules"]), set(found["built"])


def loaded(modules: set[str], names: tuple[str, ...]) -> list[str]:
    return sorted(m for m in modules for name in names if f"{m}.".startswith(f"chalicelib.{name}."))


def test_importing_the_app_builds_no_model_and_leaves_handlers_alone() -> None:
    modules, built = seen("import app")
    assert built == set()
    assert loaded(modules, UNLOADED) == []
    handlers = {m for m in modules if m.startswith("chalicelib.api.routes.")}
    assert handlers == {"chalicelib.api.routes.refused", "chalicelib.api.routes.v1"}


HEAVY = ("acme", "aws_lambda_powertools", "azure", "boto3", "botocore", "google", "kubernetes", "paramiko", "pynamodb")


def test_importing_the_app_or_a_function_loads_nobodys_sdk() -> None:
    """A cold start pays for each; whatever needs one imports it with the event that needs it."""
    functions = ", ".join(path.stem for path in (ROOT / "functions").glob("[a-z]*.py"))
    modules, _ = seen(f"import app; from functions import {functions}")
    assert not {module.partition(".")[0] for module in modules} & set(HEAVY)


def test_a_first_answer_loads_its_own_noun_and_no_other(rig: Rig) -> None:
    folder = str(rig.world.folder)
    modules, built = seen(f"{CALL}ask('/api/projects/list')", folder, ADMIN)
    assert loaded(modules, ("domain.specs", "planning", "configuration.problems", "api.routes.runs")) == []
    assert {"User", "Project"} <= built and not built & {"Run", "Job", "Instance"}


def test_a_first_plan_of_a_task_reads_no_configuration_file_and_words_no_problem(rig: Rig) -> None:
    body = json.dumps({"run_spec": task()})
    script = f"{CALL}ask('/api/project/main/runs/get_plan', {body.encode()!r})"
    modules, built = seen(script, str(rig.world.folder), ADMIN)
    assert "RunSpec" in built
    assert loaded(modules, ("configuration.parse", "configuration.problems", "domain.specs.volumes")) == []
    assert not modules & {"yaml", "difflib", "cryptography.fernet"}
