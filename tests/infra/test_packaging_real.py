"""What `chalice deploy` would send: packaged offline from a bare copy, and looked into."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from infra import charges, stateless
from infra.functions import FUNCTIONS, UNNAMED
from infra.packaging import merged
from tests.infra.test_packaging import POLICIES, ROOT

CHALICE = Path(sys.executable).with_name("chalice")


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Without the packages of requirements.txt: those are pip's to fetch, and this test meets a closed door outside."""
    bare = tmp_path_factory.mktemp("bare")
    shutil.copy(ROOT / "app.py", bare)
    for folder in ("chalicelib", "functions", "vendor", ".chalice"):
        shutil.copytree(ROOT / folder, bare / folder, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    (bare / "requirements.txt").touch()
    return bare


def chalice(bare: Path, *args: str) -> subprocess.CompletedProcess[str]:
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(bare),
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
        "http_proxy": "http://127.0.0.1:9",
        "https_proxy": "http://127.0.0.1:9",
    }
    return subprocess.run([CHALICE, *args], cwd=bare, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def package(bare: Path) -> Path:
    """Of no stage that somebody named."""
    done = chalice(bare, "package", "out")
    assert done.returncode == 0, done.stdout + done.stderr
    return bare / "out"


def resources(package: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((package / "sam.json").read_text())["Resources"]
    return found


def test_the_zip_runs_by_itself(package: Path, tmp_path: Path) -> None:
    """The symlink in `vendor/` lands the functions at the root, beside the app that calls them."""
    with zipfile.ZipFile(package / "deployment.zip") as archive:
        archive.extractall(tmp_path)
    code = (
        "import app, functions, functions.reconcile; print(app.__file__, functions.__file__, len(app.app.routes) > 50)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(tmp_path / "app.py"), str(tmp_path / "functions" / "__init__.py"), "True"]


def test_nothing_of_chalices_has_a_standing_charge(package: Path) -> None:
    made = {"Resources": resources(package)}
    assert charges.unknown(made) == charges.standing(made) == []


def test_each_function_has_its_own_role_with_its_own_policy(package: Path) -> None:
    made = resources(package)
    roles = {name for name, one in made.items() if one["Type"] == "AWS::IAM::Role"}
    functions = {name: one for name, one in made.items() if one["Type"] == "AWS::Serverless::Function"}
    assert sorted(functions) == ["APIHandler", "EraseUnused", "ReapIdle", "Reconcile", "SweepOrphans"]
    used = [one["Properties"]["Role"]["Fn::GetAtt"][0] for one in functions.values()]
    assert sorted(used) == sorted(roles)
    written = [json.loads(path.read_text())["Statement"] for path in POLICIES]
    for role in roles:
        policies = made[role]["Properties"]["Policies"]
        assert next(policy["PolicyDocument"]["Statement"] for policy in policies) in written


def test_schedules_are_what_the_app_says(package: Path) -> None:
    rates = {
        name: next(iter(one["Properties"]["Events"].values()))["Properties"]["Schedule"]
        for name, one in resources(package).items()
        if one["Type"] == "AWS::Serverless::Function" and name != "APIHandler"
    }
    often = {"Reconcile": "rate(1 minute)", "ReapIdle": "rate(2 minutes)"}
    assert rates == {**often, "SweepOrphans": "rate(5 minutes)", "EraseUnused": "rate(10 minutes)"}


def test_functions_are_as_the_table_says_and_know_their_stage(package: Path) -> None:
    made = resources(package)
    for function in FUNCTIONS:
        if function.chalice:
            properties = made[function.chalice]["Properties"]
            assert (properties["MemorySize"], properties["Timeout"]) == (function.memory, function.timeout)
            assert properties["Environment"] == {"Variables": function.environment(UNNAMED, {})}


def test_ours_is_merged_into_what_chalice_packs(bare: Path, package: Path) -> None:
    """As somebody does it by hand: each function is there once, with the name and the policy of its stage."""
    expected = subprocess.run(
        [sys.executable, "-m", stateless.__name__], cwd=ROOT, capture_output=True, check=True
    ).stdout
    (bare / "ours.json").write_bytes(expected)
    own = json.loads((package / "sam.json").read_text())
    done = chalice(bare, "package", "--merge-template", "ours.json", "merged")
    assert done.returncode == 0, done.stdout + done.stderr
    made = resources(bare / "merged")
    assert merged(json.loads(expected), own)["Resources"] == made, "as `make deploy` merges it"
    named = [one["Properties"]["FunctionName"] for one in made.values() if "Function" in one["Type"].split("::")]
    assert sorted(named) == sorted(f"dstack-{UNNAMED}-{function.name}" for function in FUNCTIONS)
    for role in (one["Properties"] for one in made.values() if one["Type"] == "AWS::IAM::Role"):
        (policy,) = role["Policies"]
        assert "Fn::Sub" in json.dumps(policy), "it names this account and region, which Chalice's own leaves open"


def test_a_stage_whose_policies_chalice_would_guess_is_refused(bare: Path) -> None:
    done = chalice(bare, "deploy", "--stage", "another")
    assert done.returncode != 0 and "iam_role_arn" in " ".join(done.stderr.split()), done.stdout + done.stderr
