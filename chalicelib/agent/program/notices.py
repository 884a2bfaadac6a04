"""Notices that the cloud takes this machine back, which only the machine itself hears in time.

EC2 tells a spot machine about two minutes ahead, at an address that the machine asks every few seconds.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Callable, Dict, Optional

from ..kernel.lazy import LazyModule

if TYPE_CHECKING:
    import calendar
else:
    calendar = LazyModule("calendar")

EC2_METADATA = "http://169.254.169.254"
TOKEN_SECONDS = 21600
PATIENCE = 2.0  # seconds

Notice = Optional[int]  # when the machine goes, in microseconds since 1970; None: nothing was announced


class Ec2:
    def __init__(self, base: str = EC2_METADATA) -> None:
        self._base, self._token = base, ""
        from urllib.request import ProxyHandler, build_opener  # which takes time: no other machine's agent needs it

        self._open = build_opener(ProxyHandler({})).open

    def __call__(self) -> Notice:
        """Raises OSError or ValueError if the service doesn't answer as it should."""
        from urllib.error import HTTPError

        for _ in range(2):
            if not self._token:
                self._token = self._ask("PUT", "/latest/api/token", "-ttl-seconds", str(TOKEN_SECONDS))
            try:
                return announced(self._ask("GET", "/latest/meta-data/spot/instance-action", "", self._token))
            except HTTPError as refused:
                if refused.code == 404:
                    return None
                if refused.code != 401:
                    raise
                self._token = ""  # it has expired
        return None

    def _ask(self, method: str, path: str, header: str, value: str) -> str:
        from urllib.request import Request

        headers = {"X-aws-ec2-metadata-token" + header: value}
        request = Request(self._base + path, method=method, headers=headers)
        with self._open(request, timeout=PATIENCE) as answer:
            return str(answer.read(4096), "utf-8", "replace")


def announced(text: str) -> Notice:
    """`{"action": "terminate", "time": "2026-11-23T08:22:00Z"}`."""
    notice = json.loads(text)
    if not isinstance(notice, dict) or not isinstance(notice.get("time"), str):
        raise ValueError("a notice without a time: %.100r" % text)
    return calendar.timegm(time.strptime(notice["time"], "%Y-%m-%dT%H:%M:%SZ")) * 1000000


class Listener:
    """Asks again and again. That nobody answers, as where the metadata service is switched off, is said once."""

    def __init__(self, ask: Callable[[], Notice], log: Callable[[str], None]) -> None:
        self._ask, self._log, self._silent = ask, log, False

    def __call__(self) -> Notice:
        try:
            notice = self._ask()
        except (OSError, ValueError) as problem:
            if not self._silent:
                self._log("can't ask whether the cloud takes this machine back, so jobs won't be warned: %s" % problem)
            self._silent = True
            return None
        if self._silent:
            self._log("can ask again whether the cloud takes this machine back")
        self._silent = False
        return notice


SOURCES: Dict[str, Callable[[], Callable[[], Notice]]] = {"ec2": Ec2}
