"""`make carriers STAGE=dev`: puts carriers, with what images of containers may lack (Python, sshd), into a stage.

They are made of packages from Debian, which a deployment doesn't need to reach, and only installations that buy
containers need them. Run it again after an upgrade: a carrier that is still current isn't made anew.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from chalicelib.carrier.make import make
from chalicelib.carrier.packages import ARCHITECTURES, release
from chalicelib.store.blobs import Blobs, S3Blobs
from chalicelib.usecases.agents import carriers
from infra import account, command
from infra.account import DATA, client, explained
from infra.stacks import Stack


@dataclass
class CarrierReport:
    stage: str
    digests: dict[str, str] = field(default_factory=dict)


def main(argv: list[str] | None = None) -> int:
    parser = command.parser(
        "infra.carriers", "Upload the carriers, which bring Python into containers whose image has none."
    )
    return command.run(parser.parse_args(argv), run)


def run(given: argparse.Namespace, say: command.Say, _: command.Agree) -> CarrierReport:
    account.here(given.region, given.profile)
    return put(given.stage, say, make, client, given.poll)


def put(
    stage: str, say: command.Say, make: Callable[[str], bytes], clients: Callable[[str], Any], poll: float
) -> CarrierReport:
    def build(architecture: str) -> bytes:
        say(f"Making the carrier for {architecture} …")
        return make(architecture)

    bucket = Stack(clients("cloudformation"), f"dstack-{stage}{DATA}", say, poll).physical("Bucket")
    blobs, report = S3Blobs(bucket, lambda: clients("s3")), CarrierReport(stage)
    with explained(f"put carriers into {bucket}"):
        for architecture in ARCHITECTURES:
            report.digests[architecture] = carriers.ensure(blobs, architecture, release(), build)
    return report


def advice(blobs: Blobs, stage: str) -> str:
    """For a stage that has carriers of an earlier version; empty for any other."""
    if {carriers.newest(blobs, architecture)[0] for architecture in ARCHITECTURES} <= {"", release()}:
        return ""
    return f"The carriers of this stage are of an earlier version. Renew them with `make carriers STAGE={stage}`."


if __name__ == "__main__":
    sys.exit(main())
