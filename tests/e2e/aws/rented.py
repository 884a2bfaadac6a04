"""An AWS account over HTTP: `python -m tests.e2e.aws.rented PORT`. The SDK comes here if AWS_ENDPOINT_URL says so.

Beside AWS's own calls, `/-/machines` lists what was launched with its user data, and `/-/owned` what is still there.
"""

from __future__ import annotations

import json
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from botocore.awsrequest import AWSPreparedRequest, HeadersDict

from chalicelib.domain.instants import SECOND
from tests.backends.aws.account import Account, Script
from tests.backends.aws.lines import KEY
from tests.backends.aws.wire import Call, raw_user_data

REGION = "us-east-1"


class Rented(Account):
    def __init__(self) -> None:
        super().__init__(lambda: time.time_ns() // 1000, Script(lag=0, boot=SECOND, end=SECOND))

    def launched(self) -> list[dict[str, Any]]:
        with self._lock:
            self.machines.age(REGION)
            return [
                {
                    "id": each.id,
                    "ended": each.ended,
                    "spot": bool(each.spot_request),
                    "user_data": raw_user_data(each.params).decode(),
                }
                for each in self.machines.all.values()
            ]

    def owned(self) -> list[str]:
        with self._lock:
            there = [each["id"] for each in self.launched() if not each["ended"]]
            for operation, key, name in (
                ("DescribeVolumes", "Volumes", "VolumeId"),
                ("DescribeAddresses", "Addresses", "AllocationId"),
                ("DescribePlacementGroups", "PlacementGroups", "GroupName"),
            ):
                found = self.handle(Call("ec2", REGION, operation, {}, KEY))
                there += [each[name] for each in found[key]]
            return there


class Handler(BaseHTTPRequestHandler):
    account: Rented

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        url = f"http://{self.headers['Host']}{self.path}"
        answer = self.account.send(AWSPreparedRequest("POST", url, HeadersDict(dict(self.headers)), body, False))
        self._answer(answer.status_code, dict(answer.headers), answer.content)

    def do_GET(self) -> None:
        shown = {"/-/machines": self.account.launched, "/-/owned": self.account.owned}[self.path]()
        self._answer(200, {"Content-Type": "application/json"}, json.dumps(shown).encode())

    def _answer(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.send_response(status)
        for name, value in headers.items():
            if name.lower() != "content-length":
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Not a line for every call."""


def main(port: int) -> None:
    Handler.account = Rented()
    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    print("ready", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main(int(sys.argv[1]))
