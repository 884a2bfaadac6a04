"""Interruption notices for spot machines, polled from the cloud's metadata service.

Only the machine itself learns of an interruption in time. EC2 announces it about two minutes ahead, and Azure half a
minute. Google's service says that it has begun, and half a minute is left.
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

METADATA = "http://169.254.169.254"
TOKEN_SECONDS = 21600
PATIENCE = 2.0  # seconds
TAKEN_BACK = ("Preempt", "Terminate")  # other events are maintenance, after which the machine goes on
LEFT = 30.0  # seconds between the notice of Compute Engine and the end

Notice = Optional[int]  # when the machine will be interrupted, in microseconds since 1970; None: no notice


class Ec2:
    def __init__(self, base: str = METADATA) -> None:
        self._base, self._token = base, ""
        from urllib.request import ProxyHandler, build_opener  # here, because it takes time and only EC2 needs it

        self._open = build_opener(ProxyHandler({})).open

    def __call__(self) -> Notice:
        """The current notice. Raises OSError or ValueError if the metadata service doesn't answer as it should."""
        from urllib.error import HTTPError

        for _ in range(2):
            if not self._token:
                self._token = self._request("PUT", "/latest/api/token", "-ttl-seconds", str(TOKEN_SECONDS))
            try:
                return parse_notice(self._request("GET", "/latest/meta-data/spot/instance-action", "", self._token))
            except HTTPError as refused:
                if refused.code == 404:
                    return None
                if refused.code != 401:
                    raise
                self._token = ""  # it has expired
        return None

    def _request(self, method: str, path: str, header: str, value: str) -> str:
        from urllib.request import Request

        headers = {"X-aws-ec2-metadata-token" + header: value}
        request = Request(self._base + path, method=method, headers=headers)
        with self._open(request, timeout=PATIENCE) as response:
            return str(response.read(4096), "utf-8", "replace")


class ComputeEngine:
    """Asks again whether the machine is being taken back; the first answer that says so fixes the time."""

    def __init__(self, base: str = METADATA, now: Callable[[], float] = time.time) -> None:
        self._base, self._now, self._notice = base, now, None  # type: str, Callable[[], float], Notice
        from urllib.request import ProxyHandler, build_opener

        self._open = build_opener(ProxyHandler({})).open

    def __call__(self) -> Notice:
        """The current notice. Raises OSError or ValueError if the metadata service doesn't answer as it should."""
        from urllib.request import Request

        if self._notice is None:
            url = self._base + "/computeMetadata/v1/instance/preempted"
            with self._open(Request(url, headers={"Metadata-Flavor": "Google"}), timeout=PATIENCE) as response:
                text = str(response.read(64), "utf-8", "replace").strip()
            if text not in ("TRUE", "FALSE"):
                raise ValueError("neither TRUE nor FALSE: %.60r" % text)
            if text == "TRUE":
                self._notice = int((self._now() + LEFT) * 1000000)
        return self._notice


def parse_notice(text: str) -> Notice:
    """The time in `{"action": "terminate", "time": "2026-11-23T08:22:00Z"}`. Raises ValueError."""
    notice = json.loads(text)
    if not isinstance(notice, dict) or not isinstance(notice.get("time"), str):
        raise ValueError("a notice without a time: %.100r" % text)
    return calendar.timegm(time.strptime(notice["time"], "%Y-%m-%dT%H:%M:%SZ")) * 1000000


class ScheduledEvents:
    """Azure's. An answer may be about several machines, which it names. The first question switches events on, which
    takes up to two minutes: until then it isn't answered."""

    def __init__(self, base: str = METADATA) -> None:
        self._base, self._name = base, ""
        from urllib.request import (
            ProxyHandler,
            build_opener,
        )  # here, because it takes time and only this source needs it

        self._open = build_opener(ProxyHandler({})).open

    def __call__(self) -> Notice:
        """The current notice. Raises OSError or ValueError if the metadata service doesn't answer as it should."""
        if not self._name:
            path = "/metadata/instance/compute/name?api-version=2021-02-01&format=text"
            self._name = self._request(path).strip()
        text = self._request("/metadata/scheduledevents?api-version=2020-07-01")
        return parse_events(text, self._name, int(time.time() * 1000000))

    def _request(self, path: str) -> str:
        from urllib.request import Request

        request = Request(self._base + path, headers={"Metadata": "true"})
        with self._open(request, timeout=PATIENCE) as response:
            return str(response.read(1 << 16), "utf-8", "replace")


def parse_events(text: str, name: str, now: int) -> Notice:
    """When the machine of that name is taken back, by the events in the document; `now` if that has begun. Raises
    ValueError."""
    from email.utils import mktime_tz, parsedate_tz

    document = json.loads(text)
    events = document.get("Events") if isinstance(document, dict) else None
    if not isinstance(events, list) or not all(isinstance(event, dict) for event in events):
        raise ValueError("a document without events: %.100r" % text)
    for event in events:
        if event.get("EventType") not in TAKEN_BACK:
            continue
        if name.lower() not in [str(each).lower() for each in event.get("Resources") or ()]:
            continue
        if not event.get("NotBefore"):
            return now
        at = parsedate_tz(str(event["NotBefore"]))
        if at is None:
            raise ValueError("an event without a time: %.100r" % event)
        return mktime_tz(at) * 1000000
    return None


class NoticePoller:
    """Polls a source of notices. Failures, as with a metadata service that is switched off, are logged once."""

    def __init__(self, poll: Callable[[], Notice], log: Callable[[str], None]) -> None:
        self._poll, self._log, self._failing = poll, log, False

    def __call__(self) -> Notice:
        try:
            notice = self._poll()
        except (OSError, ValueError) as problem:
            if not self._failing:
                self._log("can't poll for spot interruption notices, so jobs won't be warned: %s" % problem)
            self._failing = True
            return None
        if self._failing:
            self._log("polling for spot interruption notices works again")
        self._failing = False
        return notice


SOURCES: Dict[str, Callable[[], Callable[[], Notice]]] = {
    "ec2": Ec2,
    "gce": ComputeEngine,
    "scheduled-events": ScheduledEvents,
}
