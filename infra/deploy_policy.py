"""`make policy STAGE=prod`: writes the policies with which whoever has them may deploy this stage, and nothing else.

Give it the options that you give `make deploy`. A managed policy has 6,144 characters at most, so there may be several,
all of which a user or a role needs. It needs credentials only to find out the account, unless `--account` names it.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from chalicelib.errors import Invalid
from infra import account, command, spending, stateless, tagging
from infra.account import AwsAccount
from infra.deployer import Options, grants
from infra.functions import FUNCTIONS
from infra.policies import VERSION, in_account

MOST = 6144  # characters of a managed policy, without spaces
SET = "Boundary=arn:aws:iam::111122223333:policy/limits"  # in a hint


@dataclass
class PolicyReport:
    stage: str
    files: list[str] = field(default_factory=list)


def documents(stage: str, where: AwsAccount, chosen: Options) -> list[dict[str, Any]]:
    """The statements in as few policies as they fit in."""
    found = in_account(grants(stage, chosen), stage, where.id, where.region, where.partition)
    parts: list[list[Any]] = [[]]
    for statement in found["Statement"]:
        if size(_policy([*parts[-1], statement])) > MOST:
            parts.append([])
        parts[-1].append(statement)
    return [_policy(part) for part in parts]


def size(document: Mapping[str, Any]) -> int:
    """As IAM counts it."""
    return len("".join(json.dumps(document).split()))


def key_statements(stage: str, where: AwsAccount) -> list[dict[str, Any]]:
    """What a key's own policy must say, besides that IAM decides in its account, as the policy of a new key does:
    CloudWatch encrypts the stage's logs by itself."""
    groups = f"arn:{where.partition}:logs:{where.region}:{where.id}:log-group:/aws/lambda/dstack-{stage}-*"
    suffix = "amazonaws.com.cn" if where.partition == "aws-cn" else "amazonaws.com"
    return [
        {
            "Sid": "Logs",
            "Effect": "Allow",
            "Principal": {"Service": f"logs.{where.region}.{suffix}"},
            "Action": ["kms:Decrypt", "kms:DescribeKey", "kms:Encrypt", "kms:GenerateDataKey*", "kms:ReEncrypt*"],
            "Resource": "*",  # the key whose policy this is
            "Condition": {"ArnLike": {"kms:EncryptionContext:aws:logs:arn": groups}},
        }
    ]


def _policy(statements: Iterable[Any]) -> dict[str, Any]:
    return {"Version": VERSION, "Statement": list(statements)}


def write(stage: str, where: AwsAccount, chosen: Options, into: Path) -> list[str]:
    into.mkdir(parents=True, exist_ok=True)
    found: dict[str, Any] = {f"deploy-{at}.json": each for at, each in enumerate(documents(stage, where, chosen), 1)}
    if chosen.key:
        found["key.json"] = key_statements(stage, where)
    for name, content in found.items():
        (into / name).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    return [str(into / name) for name in found]


def main(argv: list[str] | None = None) -> int:
    parser = command.parser("infra.deploy_policy", "Write the policies that allow to deploy a stage, and nothing else.")
    command.choices(parser)
    parser.add_argument("--account", help="the account's number, instead of that of the credentials")
    parser.add_argument("--into", type=Path, default=Path("policies"), help="the folder for them")
    return command.run(parser.parse_args(argv), run)


def run(given: argparse.Namespace, say: command.Say, _: command.Agree) -> PolicyReport:
    parameters = command.pairs(given.set, "--set", SET)
    if unknown := sorted(parameters.keys() - (known := stateless.parameters() | spending.parameters()).keys()):
        raise Invalid(f"A stage has no parameter {', '.join(unknown)}.", hint=f"It has {', '.join(sorted(known))}.")
    where = named(given.account, given.region) if given.account else account.here(given.region, given.profile)
    chosen = Options.of(parameters, tagging.merged({}, tagging.given(given.tag)), where.partition)
    files = write(given.stage, where, chosen, given.into)
    say(f"Stage {given.stage} in account {where.id}, region {where.region}: {len(FUNCTIONS)} functions")
    for file in files:
        say(f"  {file}")
    return PolicyReport(given.stage, files)


def named(number: str, region: str | None) -> AwsAccount:
    """An account that isn't asked."""
    from botocore.exceptions import UnknownRegionError
    from botocore.session import Session

    region = region or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    if not number.isdecimal() or len(number) != 12:
        raise Invalid(f"--account {number} isn't an account's number.", hint="It has 12 digits.")
    if not region:
        raise Invalid("No region is set.", hint="Set one as in `make policy STAGE=dev REGION=eu-west-1`.")
    try:
        partition = Session().get_partition_for_region(region)
    except UnknownRegionError as error:
        raise Invalid(f"AWS has no region {region}.", hint="Name one as in REGION=eu-west-1.") from error
    return AwsAccount(number, region, f"arn:{partition}:iam::{number}:root")


if __name__ == "__main__":
    sys.exit(main())
