"""The policy for whoever deploys: with all else denied, deploying, updating and removing work, and need all of it."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest

from infra import command, deploy_policy, spending, stateful, stateless, tagging
from infra.account import AwsAccount, checked
from infra.deploy_policy import MOST, documents, size
from infra.deployer import KEPT, Options, made_up
from tests.harness.iam import Call, allowed, grounds, statements
from tests.infra.account import Account
from tests.infra.deploying import ACCOUNT, HANDLERS, REGION, SEEN, STAGE, Deploying
from tests.infra.test_resuming import Deployer

ROOT = Path(__file__).parents[2]
WHERE = AwsAccount(ACCOUNT, REGION, f"arn:aws:iam::{ACCOUNT}:user/me")
KEY = f"arn:aws:kms:{REGION}:{ACCOUNT}:key/1-2"
BOUNDARY = f"arn:aws:iam::{ACCOUNT}:policy/limits"
ALL = Options(BOUNDARY, KEY, {"team": "ml", "cost centre": "7"}, alarms=True, bus=True, vpc=True, private=True)
CHOSEN = {
    "nothing": Options(),
    "no alarm": Options(alarm=False),
    "CloudWatch's alarms alone": Options(alarm=False, alarms=True),
    "a boundary": Options(boundary=BOUNDARY),
    "a key": Options(key=KEY),
    "tags": Options(tags={"team": "ml"}),
    "a bus": Options(bus=True),
    "a VPC": Options(vpc=True),
    "a private API": Options(private=True),
    "an API for agents": Options(agent_api=True),
    "everything": ALL,
}


def denied(found: list[dict[str, Any]], calls: list[Call]) -> list[str]:
    return [str(call) for call in calls if not allowed(found, call)]


@pytest.mark.parametrize("options", CHOSEN.values(), ids=list(CHOSEN))
@pytest.mark.slow
def test_a_deployment_an_update_and_a_removal_pass_with_all_else_denied(options: Options) -> None:
    calls = list(Deploying(options).calls())
    assert len(calls) > 300 and denied(documents(STAGE, WHERE, options), calls) == []


@pytest.mark.parametrize("options", CHOSEN.values(), ids=list(CHOSEN))
@pytest.mark.slow
def test_nothing_of_it_can_be_left_out(options: Options) -> None:
    """Neither a statement, nor an action or a thing of one: without it, some call would be denied."""
    found, needed = documents(STAGE, WHERE, options), set[tuple[str, str]]()
    for call in {str(call): call for call in Deploying(options).calls()}.values():
        why = [{(each.statement, each.action), (each.statement, each.resource)} for each in grounds(found, call)]
        needed |= set.intersection(*why) if why else set()
    parts = {(each["Sid"], part) for each in statements(found) for part in (*each["Action"], *each["Resource"])}
    assert parts - needed == set()


def test_what_the_templates_have_is_known_to_the_schemas() -> None:
    """A new type of resource needs its calls looked up."""
    templates = (stateful.template(), stateless.template(STAGE), spending.template(STAGE))
    types = {each["Type"] for one in templates for each in one["Resources"].values() if "Type" in each}
    hint = "name them in tests/infra/handlers.json, and run `.venvs/aws_lint/bin/python .ci/aws_handlers.py`"
    assert types <= set(HANDLERS), hint


def test_what_our_commands_call_is_what_the_emulator_saw(tmp_path: Path) -> None:
    """The calls of a deployment on an account in memory: a new one of the command needs a new record."""
    Deployer(account := Account(), tmp_path).run()
    seen = {line.split()[1].partition(":")[2] for line in SEEN.read_text().splitlines()}
    others = {"UploadFile": "PutObject", "CopyObject": "PutObject", "ListObjectsV2": "ListBucket"}
    others |= {"Invoke": "InvokeFunction"}
    calls = ("".join(map(str.title, call.partition(".")[2].split("_"))) for call in account.calls)
    made = {others.get(each, each) for each in calls}
    assert made and made <= seen, sorted(made - seen)


@pytest.mark.parametrize("options", CHOSEN.values(), ids=list(CHOSEN))
def test_each_policy_fits_into_a_managed_one(options: Options) -> None:
    found = documents(checked("a" * 21), AwsAccount(ACCOUNT, "ap-southeast-4", "arn:aws-us-gov:iam::1:x"), options)
    assert len(found) <= 3 and all(size(each) <= MOST for each in found)
    sids = [each["Sid"] for each in statements(found)]
    assert len(sids) == len(set(sids))


@pytest.mark.parametrize("options", CHOSEN.values(), ids=list(CHOSEN))
def test_it_is_about_this_stage_alone_but_for_what_has_no_names(options: Options) -> None:
    nameless = {
        "Templates",
        "Limits",
        "AllLogs",
        "Apis",
        "AgentApis",
        "CreateAgentApis",
        "TagAgentApis",
        "ApiTags",
        "Private",
        "Transform",
        "Subscriptions",
        "Bills",
    }
    nameless |= {"Network", "CreateStream", "Stream", "StreamTags"}
    for each in statements(documents(STAGE, WHERE, options)):
        assert not any("*" in action for action in each["Action"])
        for thing in each["Resource"]:
            assert (
                f"dstack-{STAGE}" in thing or f"-chalice-{STAGE}-" in thing or thing == KEY or each["Sid"] in nameless
            )


def test_nobody_can_make_a_role_without_the_boundary_or_take_it_away() -> None:
    found, role = documents(STAGE, WHERE, Options(boundary=BOUNDARY)), f"arn:aws:iam::{ACCOUNT}:role/dstack-{STAGE}-X-1"
    bound = {"iam:PermissionsBoundary": BOUNDARY}
    for action in ("iam:CreateRole", "iam:PutRolePolicy", "iam:PutRolePermissionsBoundary"):
        assert allowed(found, Call(action, role, bound))
        assert not allowed(found, Call(action, role))
        assert not allowed(found, Call(action, role, {"iam:PermissionsBoundary": f"{BOUNDARY}2"}))
    assert not allowed(found, Call("iam:DeleteRolePermissionsBoundary", role, bound))


def test_nothing_is_made_without_the_tags() -> None:
    found = documents(STAGE, WHERE, Options(tags={"team": "ml"}))
    tags = {"aws:RequestTag/team": "ml"}
    for action, thing in (
        ("iam:CreateRole", f"arn:aws:iam::{ACCOUNT}:role/dstack-{STAGE}-X-1"),
        ("lambda:CreateFunction", f"arn:aws:lambda:{REGION}:{ACCOUNT}:function:dstack-{STAGE}-api"),
        ("sns:CreateTopic", f"arn:aws:sns:{REGION}:{ACCOUNT}:dstack-{STAGE}-spending"),
    ):
        assert allowed(found, Call(action, thing, tags)) and not allowed(found, Call(action, thing))


@pytest.mark.parametrize(
    ("action", "thing"),
    [
        ("iam:CreateRole", f"arn:aws:iam::{ACCOUNT}:role/another"),
        ("iam:AttachRolePolicy", f"arn:aws:iam::{ACCOUNT}:role/dstack-{STAGE}-X-1"),
        ("lambda:UpdateFunctionCode", f"arn:aws:lambda:{REGION}:{ACCOUNT}:function:dstack-prod-api"),
        ("lambda:UpdateFunctionCode", f"arn:aws:lambda:eu-west-1:{ACCOUNT}:function:dstack-{STAGE}-api"),
        ("dynamodb:DeleteTable", f"arn:aws:dynamodb:{REGION}:{ACCOUNT}:table/dstack-{STAGE}"),
        ("ssm:DeleteParameter", f"arn:aws:ssm:{REGION}:{ACCOUNT}:parameter/dstack-{STAGE}/master-key"),
        ("s3:DeleteObject", f"arn:aws:s3:::dstack-{STAGE}-{ACCOUNT}-{REGION}/logs/a"),
        ("cloudformation:DeleteStack", f"arn:aws:cloudformation:{REGION}:{ACCOUNT}:stack/dstack-prod/1"),
    ],
)
def test_it_reaches_nothing_else(action: str, thing: str) -> None:
    assert not allowed(documents(STAGE, WHERE, ALL), Call(action, thing, {"iam:PermissionsBoundary": BOUNDARY}))


def test_a_role_is_passed_to_our_services_alone() -> None:
    role = f"arn:aws:iam::{ACCOUNT}:role/dstack-{STAGE}-X-1"
    found = documents(STAGE, WHERE, ALL)
    assert allowed(found, Call("iam:PassRole", role, {"iam:PassedToService": "lambda.amazonaws.com"}))
    assert not allowed(found, Call("iam:PassRole", role, {"iam:PassedToService": "ec2.amazonaws.com"}))


def test_names_that_cloudformation_shortens_are_within_it() -> None:
    assert made_up("prod") == "dstack-prod-"
    assert made_up("a" * 21) == f"dstack-{'a' * 17}" and len(made_up("a" * 21)) == KEPT


@pytest.mark.parametrize("partition", ["aws-us-gov", "aws-cn"])
def test_it_is_of_the_accounts_partition(partition: str) -> None:
    where = AwsAccount(ACCOUNT, "any-1", f"arn:{partition}:iam::{ACCOUNT}:user/me")
    text = json.dumps(documents(STAGE, where, Options(alarm=True, bus=True)))
    assert "arn:aws:" not in text and f"arn:{partition}:" in text and "${" not in text and "{stage}" not in text


def test_the_command_writes_what_a_deployment_with_the_same_options_needs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [
        "prod",
        "--account",
        "111122223333",
        "--region",
        "us-gov-west-1",
        "--into",
        str(tmp_path / "new"),
        "--json",
    ]
    key = "arn:aws-us-gov:kms:us-gov-west-1:111122223333:key/1"
    assert deploy_policy.main([*given, "--set", f"EncryptionKey={key}", "--tag", "team=ml"]) == 0
    report = json.loads(capsys.readouterr().out.splitlines()[-1])
    where = AwsAccount("111122223333", "us-gov-west-1", "arn:aws-us-gov:iam::1:x")
    expected = documents("prod", where, Options(key=key, tags={"team": "ml"}, agent_api=True))
    *policies, of_key = map(Path, report["files"])
    assert [json.loads(path.read_text()) for path in policies] == expected
    (logs,) = json.loads(of_key.read_text())
    assert logs["Principal"] == {"Service": "logs.us-gov-west-1.amazonaws.com"}
    assert logs["Condition"]["ArnLike"]["kms:EncryptionContext:aws:logs:arn"].endswith("/aws/lambda/dstack-prod-*")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--account", "12"], "isn't an account's number"),
        (["--account", "1" * 12, "--tag", "aws:x=1"], "AWS's or dstack's own"),
        (["--account", "1" * 12, "--tag", "team"], "not NAME=VALUE"),
        (["--account", "1" * 12, "--tag", "a,b=1"], "no tag that AWS takes"),
        (["--account", "1" * 12, "--set", "Boundry=arn:x"], "no parameter Boundry"),
        (["--account", "1" * 12, "--region", "nowhere"], "no region nowhere"),
    ],
)
def test_what_is_wrong_is_said(given: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert deploy_policy.main(["dev", "--region", "eu-west-1", *given]) == 1
    assert message in capsys.readouterr().err


PAGE = (ROOT / "docs" / "operate" / "aws-policy.md").read_text()
COMMANDS = [line for block in re.findall(r"```shell\n(.*?)```", PAGE, re.DOTALL) for line in block.splitlines()]


@pytest.mark.slow
def test_the_policies_of_the_page_are_what_its_command_writes(tmp_path: Path) -> None:
    (line,) = (each for each in COMMANDS if "make policy" in each and "EncryptionKey" not in each)
    written = made_by(line, tmp_path)
    assert [path.name for path in written] == ["deploy-1.json", "deploy-2.json"] and "for n in 1 2; do" in PAGE
    for path in written:
        assert path.read_text() == (ROOT / "docs" / "examples" / "aws" / path.name).read_text(), f"`{line}` again"


def test_with_a_key_the_command_of_the_page_writes_what_its_policy_needs(tmp_path: Path) -> None:
    (line,) = (each for each in COMMANDS if "make policy" in each and "EncryptionKey" in each)
    assert "key.json" in [path.name for path in made_by(line, tmp_path)]


def made_by(line: str, into: Path) -> list[Path]:
    """What `make` runs for a line of the page, run."""
    shown = subprocess.run(
        [*shlex.split(line), "-n", "-o", ".venv/.dev"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    (run,) = (shlex.split(each) for each in shown.splitlines() if "infra." in each)
    assert run[2] == deploy_policy.__name__ and deploy_policy.main([*run[3:], "--into", str(into)]) == 0
    return sorted(into.iterdir())


@pytest.mark.parametrize("line", [each for each in COMMANDS if "make deploy" in each])
def test_deployments_of_the_page_choose_what_there_is(line: str) -> None:
    parser = command.parser("infra.x", "")
    command.choices(parser)
    (args,) = (word.removeprefix("ARGS=") for word in shlex.split(line) if word.startswith("ARGS="))
    given = parser.parse_args(["prod", *shlex.split(args)])
    assert tagging.given(given.tag) or command.pairs(given.set, "--set", "A=1")
    assert command.pairs(given.set, "--set", "A=1").keys() <= stateless.template("prod")["Parameters"].keys()


def test_the_figures_of_the_page_are_the_codes() -> None:
    page = " ".join(PAGE.split())
    assert f"a managed policy has {MOST:,} characters at most" in page and f"A stage takes {tagging.MOST}." in page
