"""Azure, whose machines hear of their end from a metadata service."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from chalicelib.backends.azure.places import name_of
from chalicelib.domain.instants import SECOND
from tests.backends.azure.fake import Azure
from tests.backends.azure.fake.account import EVERYTHING
from tests.backends.azure.fake.api import CLIENT, SECRET, SUBSCRIPTION, TENANT
from tests.backends.azure.provider import AzureProvider
from tests.e2e.clouds.cloud import Cloud, now

DENIED = ("Microsoft.Compute/virtualMachines/delete", "Microsoft.Network/publicIPAddresses/join/action")

METADATA = """
import email.utils, http.server, json, os, calendar, time
NOTICE = "/run/spot-notice"
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if self.headers["Metadata"] != "true":
            return self.say(400, b"")
        if self.path.startswith("/metadata/instance/compute/name?"):
            return self.say(200, b"one")
        events = []
        if os.path.exists(NOTICE):
            at = calendar.timegm(time.strptime(json.load(open(NOTICE))["time"], "%Y-%m-%dT%H:%M:%SZ"))
            at = email.utils.formatdate(at, usegmt=True)
            events = [{"EventType": "Preempt", "Resources": ["one"], "NotBefore": at}]
        self.say(200, json.dumps({"DocumentIncarnation": 1, "Events": events}).encode())
    def say(self, status, body):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
http.server.HTTPServer(("169.254.169.254", 80), Handler).serve_forever()
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
    running, metadata = "Succeeded", METADATA

    def __init__(self) -> None:
        self.fake = Azure(now)
        self.fake.start = self.fake.end = SECOND
        self.provider = AzureProvider(self.fake)

    def boot_script(self, machine: str) -> str:
        return super().boot_script(next(each for each in self._paths() if name_of(each) == machine))

    def machines(self) -> Sequence[tuple[str, str | None]]:
        return [(name_of(each.facts["path"]), each.state(now())) for each in self.fake.books.made("vm")]

    def _paths(self) -> Sequence[str]:
        return [each.facts["path"] for each in self.fake.books.made("vm")]

    def deny(self) -> Sequence[str]:
        self.fake.rights = ({**EVERYTHING, "notActions": list(DENIED)},)
        return DENIED

    def allow(self) -> None:
        self.fake.rights = (EVERYTHING,)
