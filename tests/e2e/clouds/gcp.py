"""Google's cloud, which the library calls with tokens that it signs itself."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from typing import Any, ClassVar

from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, generate_private_key
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from google.auth import jwt

from chalicelib.domain.instances import Handle
from chalicelib.domain.instants import SECOND
from tests.backends.fakes.books import Resource
from tests.backends.fakes.server import Request
from tests.backends.gcp import shop
from tests.backends.gcp.fake import PROJECT, Google
from tests.backends.gcp.operations import refusal
from tests.backends.gcp.provider import KEY, GcpProvider
from tests.e2e.clouds.cloud import Cloud, now

DENIED = ("compute.disks.create", "compute.instances.delete")

NOTICES = """
def answer(method, path, headers, notice):
    if (path, headers["Metadata-Flavor"]) != ("/computeMetadata/v1/instance/preempted", "Google"):
        return 403, ""
    return 200, "TRUE" if notice else "FALSE"
"""


@cache
def key() -> RSAPrivateKey:
    return generate_private_key(65537, 2048)


class Signed(Google):
    def authenticate(self, request: Request) -> None:
        token = request.headers.get("authorization", "").removeprefix("Bearer ")
        public = key().public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        try:
            claims = jwt.decode(token, certs=public)
        except ValueError as error:
            raise refusal(401, "authError", f"Invalid Credentials: {error}") from error
        assert claims["iss"] == KEY["client_email"]


class Journey(Cloud):
    fleet: ClassVar = {"instance_types": ["e2-medium"]}
    running, notices = "RUNNING", NOTICES

    def __init__(self) -> None:
        self.fake = Signed(now)
        self.fake.boot = self.fake.end = SECOND
        self.provider = GcpProvider(self.fake)

    @property
    def config(self) -> Any:  # type: ignore[override]
        private = key().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
        creds = {"type": "service_account", "data": json.dumps({**KEY, "private_key": private})}
        return {
            "type": "gcp",
            "project_id": PROJECT,
            "creds": creds,
            "vpc_name": "training",
            "regions": ["us-central1"],
        }

    def handle(self, machine: Resource) -> Handle:
        return Handle(kind="vm", id=machine.facts["name"], data={"zone": machine.facts["zone"]})

    def billed(self) -> float:
        """Without disks, which `owned` finds."""
        machines = (each.facts["body"]["machineType"].rpartition("/")[2] for each in self.fake.books.existing("vm"))
        return sum(shop.price(each, "us-central1", spot=False, t4s=0) for each in machines)

    def doubles_prices(self) -> None:
        for each in self.fake.books.existing("sku"):
            shop.reprice(each.facts["body"], 2)

    def deny(self) -> Sequence[str]:
        self.fake.lacking = {*DENIED}
        return DENIED

    def allow(self) -> None:
        self.fake.lacking = set()
