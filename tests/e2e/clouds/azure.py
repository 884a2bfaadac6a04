"""Azure, whose machines hear of their end from a metadata service."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from chalicelib.domain.instances import Handle
from chalicelib.domain.instants import SECOND
from tests.backends.azure.fake import Azure
from tests.backends.azure.fake.account import EVERYTHING
from tests.backends.azure.fake.api import CLIENT, SECRET, SUBSCRIPTION, TENANT
from tests.backends.azure.provider import AzureProvider
from tests.backends.fakes.books import Resource
from tests.e2e.clouds.cloud import Cloud, now

DENIED = ("Microsoft.Compute/virtualMachines/delete", "Microsoft.Network/publicIPAddresses/join/action")

NOTICES = """
def answer(method, path, headers, notice):
    import calendar, email.utils, json, time
    if headers["Metadata"] != "true":
        return 400, ""
    if path.startswith("/metadata/instance/compute/name?"):
        return 200, "one"
    events = []
    if notice:
        at = calendar.timegm(time.strptime(json.loads(notice)["time"], "%Y-%m-%dT%H:%M:%SZ"))
        at = email.utils.formatdate(at, usegmt=True)
        events = [{"EventType": "Preempt", "Resources": ["one"], "NotBefore": at}]
    return 200, json.dumps({"DocumentIncarnation": 1, "Events": events})
"""


class Journey(Cloud):
    config: ClassVar = {
        "type": "azure",
        "subscription_id": SUBSCRIPTION,
        "tenant_id": TENANT,
        "creds": {"type": "client", "client_id": CLIENT, "client_secret": SECRET},
        "regions": ["westeurope"],
    }
    fleet: ClassVar = {"instance_types": ["Standard_D2s_v5"]}
    running, notices = "Succeeded", NOTICES

    def __init__(self) -> None:
        self.fake = Azure(now)
        self.fake.start = self.fake.end = SECOND
        self.provider = AzureProvider(self.fake)

    def handle(self, machine: Resource) -> Handle:
        return Handle(kind="vm", id=machine.facts["path"])

    def deny(self) -> Sequence[str]:
        self.fake.rights = ({**EVERYTHING, "notActions": list(DENIED)},)
        return DENIED

    def allow(self) -> None:
        self.fake.rights = (EVERYTHING,)
