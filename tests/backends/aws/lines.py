"""Clients of the SDK that lead to an account.

A client of EC2 has 800 methods and takes as long to build as fifty calls, so an account borrows them for its life.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from botocore.awsrequest import AWSPreparedRequest, AWSResponse

from tests.backends.aws.wire import loader

if TYPE_CHECKING:
    from tests.backends.aws.account import Account

KEY, SECRET = "AKIATESTSOFCONFORMANCE", "never-shown/0123456789abcdefghij"


class Line:
    """One client, and the account that it leads to."""

    def __init__(self, place: str, client: Any) -> None:
        self._place, self.client, self.account = place, client, None
        client.meta.events.register("before-send", self._send)

    account: Account | None

    def _send(self, request: AWSPreparedRequest, **_: Any) -> AWSResponse:
        if self.account is None:
            raise AssertionError("a call to an account that is closed")
        return self.account.send(request)

    def free(self) -> None:
        self.account = None
        _FREE.setdefault(self._place, []).append(self)


_FREE: dict[str, list[Line]] = {}


class Session:
    """What the SDK's session is for: making clients."""

    def __init__(self, account: Account) -> None:
        self._account = account

    def client(self, service: str, region_name: str = "us-east-1", endpoint_url: str = "", config: Any = None) -> Any:
        place = f"{service} {region_name} {getattr(config, '_user_provided_options', None)}"
        free = _FREE.get(place)
        line = free.pop() if free else Line(place, _session().client(service, region_name=region_name, config=config))
        line.account = self._account
        self._account.lines.append(line)
        return line.client


@cache
def _session() -> Any:
    import boto3
    from botocore.session import Session as Core

    core = Core()
    core.register_component("data_loader", loader())  # reads each service's model once
    return boto3.Session(KEY, SECRET, botocore_session=core)
