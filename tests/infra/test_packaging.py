"""What `chalice deploy` is told: policies, stages and requirements. `test_packaging_real.py` packages."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from chalicelib.domain.owner import ANY
from infra import functions, requirements, stateless
from infra.packaging import bound

ROOT = Path(__file__).parents[2]
UNTAGGED = (
    "Answer",  # by a token
    "AwsAccount",
    "AwsListing",
    "AwsPrices",
    "AwsCreateInto",
    "AwsProfile",
)  # what only looks, and a new group's VPC
POLICIES = sorted((ROOT / ".chalice" / "policies").glob("*.json"))
WRITTEN = functions.files(functions.UNNAMED, app=functions.ALONE)
STAGES = json.loads((ROOT / ".chalice" / "config.json").read_text())["stages"]


@pytest.mark.parametrize("path", POLICIES, ids=[path.stem for path in POLICIES])
def test_a_policy_allows_named_actions_on_named_things(path: Path) -> None:
    for statement in json.loads(path.read_text())["Statement"]:
        actions, things = statement["Action"], statement["Resource"]
        for action in [actions] if isinstance(actions, str) else actions:
            assert "*" not in action, f"{path.name}: {action}"
        for thing in [things] if isinstance(things, str) else things:
            own = "dstack-" in thing or "dstack-install" in json.dumps(statement.get("Condition", {}))
            assert own or statement["Sid"] in UNTAGGED, f"{path.name}: {thing} isn't this product's"
        assert "NotAction" not in statement and "NotResource" not in statement


@pytest.mark.parametrize("path", POLICIES, ids=[path.stem for path in POLICIES])
def test_a_function_that_chalice_deploys_alone_makes_its_own_log(path: Path) -> None:
    (logs,) = (each for each in json.loads(path.read_text())["Statement"] if each["Sid"] == "Logs")
    assert "logs:CreateLogGroup" in logs["Action"]
    assert logs["Resource"] == ["arn:aws:logs:*:*:log-group:/aws/lambda/dstack-chalice-dev*"]


@pytest.mark.parametrize("stage", STAGES)
def test_no_stage_lets_chalice_guess_a_policy(stage: str) -> None:
    for function in (STAGES[stage], *STAGES[stage]["lambda_functions"].values()):
        assert function["autogen_policy"] is False
        assert (ROOT / ".chalice" / function["iam_policy_file"]).exists()


def test_requirements_txt_is_what_the_lock_says() -> None:
    wanted = requirements.text((ROOT / "requirements-dev.lock").read_text())
    hint = "run `python -m infra.requirements`"
    assert (ROOT / "requirements.txt").read_text() == wanted, hint


@pytest.mark.parametrize("path", WRITTEN)
def test_what_chalice_reads_is_the_table_of_functions(path: str) -> None:
    assert (ROOT / ".chalice" / path).read_text() == WRITTEN[path], "run `python -m infra.functions`"


def test_no_policy_is_left_of_a_function_that_is_gone() -> None:
    assert {f"policies/{path.name}" for path in POLICIES} == set(functions.policies(functions.UNNAMED))


def test_no_stage_may_change_what_another_made() -> None:
    """Wherever a policy asks for our tag, it asks for this stage's."""
    made = bound(stateless.template("dev")["Resources"])
    conditions = [
        condition
        for resource in made.values()
        for policy in resource.get("Properties", {}).get("Policies", ())
        for statement in policy["PolicyDocument"]["Statement"]
        for condition in statement.get("Condition", {}).get("StringLike", {}).items()
        if condition[0].endswith("/dstack-install")
    ]
    assert conditions and all(value == {"Ref": "InstallId"} for _, value in conditions)
    assert ANY not in json.dumps(made)
    own = {"PolicyDocument": {"Statement": [{"Condition": {"StringLike": {"aws:ResourceTag/dstack-install": ANY}}}]}}
    assert ANY not in json.dumps(bound([own])), "Chalice's too"
