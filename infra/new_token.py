"""`make token STAGE=dev`: a new token for a stage's admin who has lost theirs.

Anybody who may read the stage's keys and write its table may do this. The old token, of which only the hash is stored,
stops working at once.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass

from chalicelib.usecases.operator.first_start import ADMIN, first_start
from infra import account, command, installed
from infra.account import explained


@dataclass
class TokenReport:
    stage: str
    api_url: str
    admin_token: str


def main(argv: list[str] | None = None) -> int:
    parser = command.parser("infra.new_token", "Give the admin of a stage a new token.")
    return command.run(parser.parse_args(argv), replace)


def replace(given: argparse.Namespace, say: command.Say, agree: command.Agree) -> TokenReport:
    where = account.here(given.region, given.profile)
    with explained("read the stage's settings"):
        found = installed.settings(given.stage)
    if not agree(f"Replace the token of `{ADMIN}` of stage {given.stage} in account {where.id}, {where.region}?"):
        raise command.Declined("Nothing was changed.")
    with explained("replace the token"):
        plane = installed.root(found).plane
        token, _ = first_start(plane, plane.random_token())
    assert token is not None, "a new token is never the old one"
    say(f"The new token of `{ADMIN}`, shown only now: {token}\n")
    say(f"  dstack project add --name main --url {found.api_url} --token {token}")
    return TokenReport(given.stage, found.api_url, token)


if __name__ == "__main__":
    sys.exit(main())
