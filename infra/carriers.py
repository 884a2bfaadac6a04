"""`make carriers STAGE=dev`: what containers of images without Python need, put where a stage's agents get it.

It is made of packages that are fetched from Debian, so it needs a network that a deployment doesn't; and only who buys
containers needs it. After an upgrade, run it again: what is there already isn't made anew.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from chalicelib.carrier.make import make
from chalicelib.carrier.packages import ARCHITECTURES, release
from chalicelib.store.blobs import S3Blobs
from chalicelib.usecases.agents import carriers
from infra import account, command
from infra.account import DATA, client, explained
from infra.stacks import Stack


@dataclass
class CarrierReport:
    stage: str
    digests: dict[str, str] = field(default_factory=dict)


def main(argv: list[str] | None = None) -> int:
    parser = command.parser("infra.carriers", "Give a stage what containers of images without Python need.")
    return command.run(parser.parse_args(argv), there)


def there(given: argparse.Namespace, say: command.Say, _: command.Agree) -> CarrierReport:
    account.here(given.region, given.profile)
    return put(given.stage, say, make, client, given.poll)


def put(
    stage: str, say: command.Say, made: Callable[[str], bytes], clients: Callable[[str], Any], poll: float
) -> CarrierReport:
    bucket = Stack(clients("cloudformation"), f"dstack-{stage}{DATA}", say, poll).physical("Bucket")
    blobs, report = S3Blobs(bucket, lambda: clients("s3")), CarrierReport(stage)
    with explained(f"put carriers into {bucket}"):
        for architecture in ARCHITECTURES:
            known, digest = carriers.newest(blobs, architecture)
            if known != release():
                say(f"Making the carrier for {architecture} …")
                digest = carriers.publish(blobs, architecture, release(), made(architecture))
            report.digests[architecture] = digest
    return report


if __name__ == "__main__":
    sys.exit(main())
