"""Calls to Vast.ai's API.

It limits each endpoint by itself: so many seconds must lie between two calls of one key from one address. So each has a
bucket of its own, and a list of many pages is read over several calls of ours: pages are remembered until all are read.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import orjson

from chalicelib.backends.kit.clock import Now, system_time
from chalicelib.backends.kit.limits import bucket_of
from chalicelib.backends.kit.rest import RestClient, Sender, at, bearer
from chalicelib.backends.vastai.errors import TABLE, failure_of
from chalicelib.backends.vastai.facts import LISTS_WITHIN
from chalicelib.domain.instants import HOUR, MINUTE, Micros
from chalicelib.errors import BackendError, Gone, Throttled, Transient

Body = Mapping[str, Any]
Page = tuple[Sequence[Body], str]  # with the token of the next; empty: it is the last

URL = "https://console.vast.ai/api"
READ, CREATE = 15.0, 30.0  # seconds
SEARCH = 7.0  # a plan waits for 8
PAGE = 25  # instances, at most
MOST_PAGES = 1_000
# Seconds between two calls, of each endpoint.
BETWEEN: Mapping[str, float] = {"search": 6.0, "create": 4.5, "show": 2.0, "list": 1.0, "destroy": 3.0}
SEARCHES = 4  # at once after a pause: both markets, for a plan and for a purchase
SWEEPS = 10 * MINUTE  # between two of them, at most: each may read one page
BY_AGE = '[{"col":"id","dir":"asc"}]'  # so that nothing moves to another page while they are read
COLUMNS = (
    *("id", "label", "actual_status", "intended_status", "cur_state", "next_state", "status_msg"),
    *("start_date", "end_date", "is_bid", "geolocation"),
)


class VastAIClient:
    def __init__(
        self,
        key: str,
        now: Now = system_time,
        *,
        send: Sender | None = None,
        burst: int = 1,
        endpoint: str = "",
    ) -> None:
        """`burst`: calls of an endpoint that may follow each other at once."""
        self._now = now
        bursts = {"search": max(burst, SEARCHES)}
        self._buckets = {
            name: bucket_of("Vast.ai", key, 1 / seconds, bursts.get(name, burst), now, name)
            for name, seconds in BETWEEN.items()
        }
        self._rest = RestClient(
            at(endpoint, URL),
            TABLE,
            bearer(key),
            secrets=[key],
            send=send,
            failure_of=failure_of,
            now=now,
            ending="/",
        )
        self._list = _List(self._page, now, LISTS_WITHIN)
        self._sweep_list = _List(self._page, now, HOUR, SWEEPS)

    # --- offers -------------------------------------------------------------------------------------------------------

    def search(self, query: Body) -> Sequence[Body]:
        answer = self._call("search", "POST", "v0", "bundles", body=query, deadline=SEARCH)
        return _items(answer, "offers")

    def create(self, offer: str, body: Body, region: str, secrets: Sequence[str]) -> Body:
        """Raises InsufficientCapacity if the offer is gone."""
        answer: Body = self._call(
            "create", "PUT", "v0", "asks", offer, body=body, region=region, secrets=secrets, deadline=CREATE
        )
        if not answer.get("new_contract"):
            raise Transient(f"Vast.ai doesn't say which instance it has created for the offer {offer}.")
        return answer

    # --- instances ----------------------------------------------------------------------------------------------------

    def check(self) -> None:
        self._call("list", "GET", "v1", "instances", query={"limit": 1})
        self.search({"limit": 1})

    def labelled(self, label: str) -> Sequence[Body]:
        """The instances with this label, which are never many."""
        instances, token = self._page("", {"label": {"eq": label}})
        if token:
            raise Transient(f"Vast.ai has more than {PAGE} instances that are called {label}.")
        return instances

    def instances(self, lasting: Micros = 0) -> Sequence[Body]:
        """All of the account's: complete, or an error. `lasting`: how old the list may be."""
        return self._list.read(lasting)

    def instances_for_sweep(self) -> Sequence[Body]:
        """For sweeps, which accept an old list."""
        return self._sweep_list.read(0)

    def instance(self, identity: str) -> Body | None:
        """None: there is none. Only for what a complete list lacks: then the key is right, so any 404 but that of a
        wrong key is about the instance."""
        if not identity.isdecimal():
            return None
        try:
            answer = self._call("show", "GET", "v0", "instances", identity, meanings={404: Gone})
        except Gone:
            return None
        if "instances" not in answer:
            raise Transient(f"Vast.ai's answer about the instance {identity} doesn't speak of it.")
        found: Body | None = answer["instances"]
        return found or None

    def destroy(self, identity: str) -> None:
        self._call("destroy", "DELETE", "v0", "instances", identity, body={})

    def close(self) -> None:
        self._rest.close()

    # ------------------------------------------------------------------------------------------------------------------

    def _page(self, token: str, filters: Body | None = None) -> Page:
        query: dict[str, str | int] = {"limit": PAGE, "order_by": BY_AGE, "select_cols": orjson.dumps(COLUMNS).decode()}
        if filters:
            query["select_filters"] = orjson.dumps(filters).decode()
        if token:
            query["after_token"] = token
        answer = self._call("list", "GET", "v1", "instances", query=query)
        return _items(answer, "instances"), str(answer.get("next_token") or "")

    def _call(
        self,
        endpoint: str,
        method: str,
        *path: str,
        query: Mapping[str, str | int] | None = None,
        body: Any = None,
        region: str = "",
        meanings: Mapping[str | int, type[BackendError]] | None = None,
        secrets: Sequence[str] = (),
        deadline: float = READ,
    ) -> Any:
        return self._rest.call(
            method,
            *path,
            query=query,
            body=body,
            region=region,
            meanings=meanings,
            secrets=secrets,
            buckets=[self._buckets[endpoint]],
            deadline=deadline,
        )


class _List:
    """All instances, the oldest first, in pages between which time must pass. A call that comes too soon leaves what it
    has read to the next, unless that comes too late: later than `within`, and `each` more for each page. What isn't
    listed would count as gone, so new instances are on the page that is read last."""

    def __init__(self, page: Callable[[str], Page], now: Now, within: Micros, each: Micros = 0) -> None:
        self._page, self._now, self._lock = page, now, threading.Lock()
        self._within, self._each = within, each
        self._begun: Micros | None = None
        self._items: list[Body] = []
        self._tokens: list[str] = []  # of the pages so far, and of the next; empty behind the last

    def read(self, lasting: Micros) -> Sequence[Body]:
        with self._lock:
            lasts = self._within + self._each * len(self._tokens) if self._is_unfinished else lasting
            if self._begun is None or not 0 <= self._now() - self._begun < lasts:
                self._begun, self._items, self._tokens = self._now(), [], []
                self._read_page("")
            while self._is_unfinished:
                self._read_page(self._tokens[-1])
            return list(self._items)

    @property
    def _is_unfinished(self) -> bool:
        return bool(self._tokens and self._tokens[-1])

    def _read_page(self, token: str) -> None:
        try:
            items, further = self._page(token)
            if further and (further in self._tokens or len(self._tokens) >= MOST_PAGES):
                raise Transient("Vast.ai's list of instances has no end: its pages lead back to one that was there.")
        except BackendError as error:
            if not (token and isinstance(error, Throttled)):
                self._begun = None  # its token may be void
            raise
        self._items += items
        self._tokens.append(further)


def _items(answer: Body, name: str) -> Sequence[Body]:
    """An answer without the list isn't an empty one."""
    items = answer.get(name)
    if not isinstance(items, list):
        raise Transient(f"Vast.ai's answer has no list of {name}.")
    return items
