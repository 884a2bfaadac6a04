"""What a function may do: grants, and the policies generated from them. No action and no resource name is a wildcard.

A grant names resources by the end of their ARNs, with `{stage}` for the stage's name. The template prepends the
partition, region and account that it is deployed to. A file for `chalice deploy`, which works for any account, leaves
these open, so only the names identify the resources.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

VERSION = "2012-10-17"
PARTITION, ACCOUNT, REGION = "${AWS::Partition}", "${AWS::AccountId}", "${AWS::Region}"
BUCKET = "dstack-{stage}-{account}-{region}"  # bucket names are global
PUBLIC = ("ec2:image/", "ssm:parameter/aws/")
WITHOUT_REGION = ("s3", "iam", "budgets", "billing")  # services whose ARNs name no region
WITHOUT_ACCOUNT = ("s3", "apigateway")


@dataclass(frozen=True)
class Grant:
    sid: str
    actions: tuple[str, ...]
    resources: tuple[str, ...]  # `dynamodb:table/dstack-{stage}`
    condition: Mapping[str, Any] = field(default_factory=dict)  # for example on a tag
    any_region: bool = False  # machines are rented in the regions that users choose


def in_file(grants: Iterable[Grant], stage: str) -> dict[str, Any]:
    """The policy for `chalice deploy`: any region of any account."""
    own = BUCKET.format(stage=stage, account="${aws:PrincipalAccount}", region="${aws:RequestedRegion}")

    def arn(thing: str, any_region: bool) -> str:
        service, rest = _named(thing, stage, own).split(":", 1)
        if service in WITHOUT_REGION:
            return f"arn:aws:{service}::{'*' if service == 'iam' else ''}:{rest}"
        return f"arn:aws:{service}:*:{'' if _is_public(thing) else '*'}:{rest}"

    return _document(grants, arn)


def in_template(grants: Iterable[Grant], stage: str, bucket: str = "") -> dict[str, Any]:
    """The policy for CloudFormation: this region of this account. `bucket`: its name, if it isn't the default one."""
    own = bucket or bucket_of(stage)

    def arn(thing: str, any_region: bool) -> dict[str, str]:
        return {"Fn::Sub": sub_arn(_named(thing, stage, own), "*" if any_region else REGION)}

    return _document(grants, arn)


def in_account(grants: Iterable[Grant], stage: str, account: str, region: str, partition: str) -> dict[str, Any]:
    """The policy for a user or a role of this account, with every name written out, in conditions too."""
    own = BUCKET.format(stage=stage, account=ACCOUNT, region=REGION)
    document = _document(grants, lambda thing, any_region: sub_arn(_named(thing, stage, own)))
    text = json.dumps(document).replace("{stage}", stage)
    for name, value in {PARTITION: partition, REGION: region, ACCOUNT: account}.items():
        text = text.replace(name, value)
    written: dict[str, Any] = json.loads(text)
    return written


def bucket_of(stage: str) -> str:
    return BUCKET.format(stage=stage, account=ACCOUNT, region=REGION)


def sub_arn(thing: str, region: str = REGION) -> str:
    service, rest = thing.split(":", 1)
    account = "" if service in WITHOUT_ACCOUNT or _is_public(thing) else ACCOUNT
    if rest.startswith("aws:"):  # what AWS itself offers
        account, rest = rest.split(":", 1)
    return f"arn:{PARTITION}:{service}:{'' if service in WITHOUT_REGION else region}:{account}:{rest}"


def _is_public(thing: str) -> bool:
    """Does it belong to AWS, so that its ARN names no account?"""
    return thing.startswith(PUBLIC)


def _named(thing: str, stage: str, bucket: str) -> str:
    return thing.replace("{stage}", stage).replace("{bucket}", bucket)


def _document(grants: Iterable[Grant], arn: Callable[[str, bool], Any]) -> dict[str, Any]:
    return {"Version": VERSION, "Statement": [_statement(grant, arn) for grant in grants]}


def _statement(grant: Grant, arn: Callable[[str, bool], Any]) -> dict[str, Any]:
    statement: dict[str, Any] = {
        "Sid": grant.sid,
        "Effect": "Allow",
        "Action": list(grant.actions),
        "Resource": [
            thing if thing == "*" or thing.startswith("arn:") else arn(thing, grant.any_region)
            for thing in grant.resources
        ],
    }
    if grant.condition:
        statement["Condition"] = dict(grant.condition)
    return statement
