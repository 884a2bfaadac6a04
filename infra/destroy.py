"""`make destroy STAGE=dev`: deletes everything of a stage that can be recreated. Its data and keys stay.

A destroyed control plane can't terminate machines. So it isn't destroyed while it still has machines, or volumes that
it created: they would cost money without anybody noticing.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field

from chalicelib.errors import NotDeployed, Refused
from infra import account, command, installed
from infra.account import AwsAccount, client, explained
from infra.functions import FUNCTIONS
from infra.stacks import Stack, course

SHOWN = 20  # names in a message


@dataclass
class DestroyReport:
    stage: str
    deleted: str | None = None
    kept: list[str] = field(default_factory=list)


def main(argv: list[str] | None = None) -> int:
    parser = command.parser("infra.destroy", "Delete a stage, but for its data and keys.")
    parser.add_argument("--leave-machines", action="store_true", help="even if machines or volumes are left without it")
    return command.run(parser.parse_args(argv), destroy)


def destroy(given: argparse.Namespace, say: command.Say, agree: command.Agree) -> DestroyReport:
    where = account.here(given.region, given.profile)
    formation = client("cloudformation")
    main_, alarm, data = (
        Stack(formation, f"dstack-{given.stage}{suffix}", say, given.poll)
        for suffix in ("", account.SPENDING, account.DATA)
    )
    report = DestroyReport(given.stage)
    if main_.found() is None:
        say(f"There is no stack {main_.name} in account {where.id}, {where.region}.")
    else:
        if not given.leave_machines:
            refuse_with_machines(given.stage, _remaining(given.stage))
        remove(main_, where, say, agree)
        report.deleted = main_.name
    if alarm.found() is not None:  # it watches resources that no longer exist
        alarm.delete()
        say(f"{alarm.name} is deleted.")
    report.kept = retained(data, given.stage)
    if report.kept:
        say(how_to_delete(given.stage, *report.kept[:3]))
    return report


def remove(stack: Stack, where: AwsAccount, say: command.Say, agree: command.Agree) -> None:
    for change in stack.removal():
        say(str(change))
    if not agree(f"Delete all this, the stack {stack.name} in account {where.id}, {where.region}?"):
        raise command.Declined("Nothing was deleted.")
    stack.delete()
    say(f"{stack.name} is deleted.")


def retained(data: Stack, stage: str) -> list[str]:
    """The names of what is retained. A stack that was only proposed, or was rolled back, is empty, so it is deleted,
    too."""
    if course(data.status()) in ("create", "clear"):
        data.delete()
        return []
    return [data.name, *(data.physical(name) for name in ("Table", "Bucket")), installed.prefix(stage)]


def _remaining(stage: str) -> list[str]:
    with explained("look for machines"):
        try:
            return list(installed.costing(installed.root(installed.settings(stage)).ports.store))
        except NotDeployed:
            return []  # it was never complete, so it has bought nothing


def refuse_with_machines(stage: str, remaining: Sequence[str]) -> None:
    if remaining:
        more = f" and {len(remaining) - SHOWN} more" if len(remaining) > SHOWN else ""
        raise Refused(
            f"The stage {stage} still has {', '.join(remaining[:SHOWN])}{more}.",
            hint="Delete them with `dstack fleet delete`, `dstack gateway delete` and `dstack volume delete`, "
            "or add --leave-machines.",
        )


def how_to_delete(stage: str, stack: str, table: str, bucket: str) -> str:
    secrets = sorted({name for function in FUNCTIONS for name in function.reads})  # those that operators put there, too
    keys = " ".join(f"{installed.prefix(stage)}/{name}" for name in secrets)
    return f"""
Its data and its keys are kept: `make deploy STAGE={stage}` brings it back as it was. To delete them for good:

  aws cloudformation delete-stack --stack-name {stack}
  aws dynamodb update-table --table-name {table} --no-deletion-protection-enabled
  aws dynamodb delete-table --table-name {table}
  aws s3 rb s3://{bucket} --force
  aws ssm delete-parameters --names {keys}"""


if __name__ == "__main__":
    sys.exit(main())
