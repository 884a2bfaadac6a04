"""What a function may do: grants, and the policies rendered from them. No action and no name of a resource is a
wildcard.

A grant names things by the tail of their ARNs, with `{stage}` for the stage's name. The template puts in front of it
the partition, region and account that it is deployed to. A file for `chalice deploy`, which may be given to any
account, leaves them open; there the names alone say what is meant.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

VERSION = "2012-10-17"
ACCOUNT, REGION = "${AWS::AccountId}", "${AWS::Region}"
BUCKET = "dstack-{stage}-{account}-{region}"  # names of buckets are those of the whole world
PUBLIC = ("ec2:image/", "ssm:parameter/aws/")
NOWHERE = ("s3", "iam")  # services whose ARNs name no region


@dataclass(frozen=True)
class Grant:
    sid: str
    actions: tuple[str, ...]
    things: tuple[str, ...]  # `dynamodb:table/dstack-{stage}`
    only_if: Mapping[str, Any] = field(default_factory=dict)  # a condition, such as on a tag
    abroad: bool = False  # in any region: machines are rented where their users want them


def in_file(grants: Iterable[Grant], stage: str) -> dict[str, Any]:
    """As `chalice deploy` reads it: any region of any account."""

    own = BUCKET.format(stage=stage, account="${aws:PrincipalAccount}", region="${aws:RequestedRegion}")

    def arn(thing: str, abroad: bool) -> str:
        service, rest = _named(thing, stage, own).split(":", 1)
        if service in NOWHERE:
            return f"arn:aws:{service}::{'*' if service == 'iam' else ''}:{rest}"
        return f"arn:aws:{service}:*:{'' if _is_public(thing) else '*'}:{rest}"

    return _document(grants, arn)


def in_template(grants: Iterable[Grant], stage: str, bucket: str = "") -> dict[str, Any]:
    """As CloudFormation reads it: this region of this account. `bucket`: its name, if it isn't the usual one."""
    own = bucket or bucket_of(stage)

    def arn(thing: str, abroad: bool) -> dict[str, str]:
        return {"Fn::Sub": sub_arn(_named(thing, stage, own), "*" if abroad else REGION)}

    return _document(grants, arn)


def bucket_of(stage: str) -> str:
    return BUCKET.format(stage=stage, account=ACCOUNT, region=REGION)


def sub_arn(thing: str, region: str = REGION) -> str:
    service, rest = thing.split(":", 1)
    account = "" if service == "s3" or _is_public(thing) else ACCOUNT
    return f"arn:${{AWS::Partition}}:{service}:{'' if service in NOWHERE else region}:{account}:{rest}"


def _is_public(thing: str) -> bool:
    """Is it AWS's own, so that its ARN names no account?"""
    return thing.startswith(PUBLIC)


def _named(thing: str, stage: str, bucket: str) -> str:
    return thing.replace("{stage}", stage).replace("{bucket}", bucket)


def _document(grants: Iterable[Grant], arn: Callable[[str, bool], Any]) -> dict[str, Any]:
    return {"Version": VERSION, "Statement": [_statement(grant, arn) for grant in grants]}


def _statement(grant: Grant, arn: Callable[[str, bool], Any]) -> dict[str, Any]:
    made: dict[str, Any] = {
        "Sid": grant.sid,
        "Effect": "Allow",
        "Action": list(grant.actions),
        "Resource": ["*" if thing == "*" else arn(thing, grant.abroad) for thing in grant.things],
    }
    if grant.only_if:
        made["Condition"] = dict(grant.only_if)
    return made
