"""Calls to Runpod: its REST API, the logs of a pod, and its older GraphQL API for what only that has."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import urlencode, urlsplit

import orjson

from chalicelib.backends.kit.clock import Now, system_time
from chalicelib.backends.kit.errors import Kind, ProviderFailure
from chalicelib.backends.kit.limits import bucket_of
from chalicelib.backends.kit.paging import pages
from chalicelib.backends.kit.rest import HEADERS, NoAnswer, RestAnswer, RestCall, RestClient, Sender, at, bearer
from chalicelib.backends.runpod.errors import TABLE, failure_of, graphql_failure
from chalicelib.errors import Transient

Body = Mapping[str, Any]


class Line(NamedTuple):
    """Of a pod's log."""

    is_jobs: bool  # the container's output; otherwise it is Runpod's
    text: str


REST = "https://api.runpod.io/v2"
GRAPHQL = "https://api.runpod.io"
# Within the three windows that Runpod limits an account by: 60 calls a minute, 3,000 an hour, 50,000 a day.
RATE, BURST = 0.5, 30
READ, CREATE = 15.0, 30.0  # seconds
LISTEN = 5.0  # seconds until a pod's log begins
QUIET = 0.5  # seconds without a further line: the log never ends, but what is there comes at once

# The least that pods with so many GPUs have in either cloud, which the REST API doesn't say, and how large a disk a CPU
# pod may have.
SIZES = (
    "query { gpuTypes { id "
    + " ".join(
        f"{cloud}{n}: lowestPrice(input: {{gpuCount: {n}, secureCloud: {is_secure}}}) {{ minVcpu minMemory }}"
        for cloud, is_secure in (("secure", "true"), ("community", "false"))
        for n in range(1, 9)
    )
    + " } cpuFlavors { id diskLimitPerVcpu } }"
)


class Client:
    def __init__(
        self,
        key: str,
        now: Now = system_time,
        *,
        send: Sender | None = None,
        listen: Sender | None = None,
        burst: int = BURST,
        endpoint: str = "",
    ) -> None:
        """`listen`: like `send`, for an answer that never ends: with what has come until the deadline."""
        self._sign, self._listen = bearer(key), listen or _listened
        self._bucket = bucket_of("Runpod", key, RATE, burst, now)
        self._rest = RestClient(
            at(endpoint, REST),
            TABLE,
            self._sign,
            secrets=[key],
            bucket=self._bucket,
            send=send,
            failure_of=failure_of,
            now=now,
        )
        self._older = at(endpoint, GRAPHQL)
        self._graphql = RestClient(
            self._older, TABLE, self._sign, secrets=[key], send=send, failure_of=graphql_failure, now=now
        )

    def call(
        self,
        method: str,
        *path: str,
        query: Mapping[str, str | int] | None = None,
        body: Any = None,
        region: str = "",
        meanings: Mapping[str | int, Kind] | None = None,
        secrets: Sequence[str] = (),
    ) -> Any:
        return self._rest.call(
            method,
            *path,
            query=query,
            body=body,
            region=region,
            meanings=meanings,
            secrets=secrets,
            deadline=READ if body is None else CREATE,
        )

    def listed(self, path: str, name: str, **query: str) -> Iterator[Body]:
        """The items of a list, which is in the answer under `name`. The published schema has no pages, and clients have
        met some; so whatever names a next page is followed, and a list that goes on without naming it is an error: what
        isn't listed would count as gone."""
        pages_read = items_read = 0

        def page(token: str) -> tuple[Sequence[Body], str]:
            nonlocal pages_read, items_read
            key, _, value = token.partition("=")
            if token.startswith("http"):
                answer = self._rest.follow(token)
            else:
                answer = self.call("GET", *path.split("/"), query={**query, **({key: value} if token else {})})
            items: Sequence[Body] = answer[name]
            pages_read, items_read = pages_read + 1, items_read + len(items)
            return items, _next(answer, name, pages_read, items_read)

        return pages(page)

    def graphql(
        self,
        query: str,
        variables: Mapping[str, Any] | None = None,
        *,
        region: str = "",
        secrets: Sequence[str] = (),
        deadline: float = READ,
    ) -> Body:
        """Runpod limits its REST API alone, so these calls take nothing from its bucket."""
        body = {"query": query, **({"variables": variables} if variables else {})}
        answer = self._graphql.call("POST", "graphql", body=body, region=region, secrets=secrets, deadline=deadline)
        found: Body = answer["data"]
        return found

    def sizes(self) -> Body:
        """The answer to `SIZES`."""
        return self.graphql(SIZES)

    def log(self, pod: str, lines: int = 50) -> Sequence[Line]:
        """The last lines of a pod's log, the system's and the container's."""
        self._bucket.take()
        call = RestCall("GET", self._older, f"/v2/pods/{pod}/logs", (("tail", str(lines)),))
        headers = {**HEADERS, "Accept": "text/event-stream", **self._sign(call)}
        try:
            answer = self._listen(RestCall(call.method, call.origin, call.path, call.query, headers), LISTEN)
        except NoAnswer as error:
            raise Transient(f"The log of the pod {pod} has no answer: {type(error).__name__}") from None
        if answer.status != 200:
            raise TABLE.error(ProviderFailure("", "", answer.status), f"GET {call.path}")
        return list(_lines(answer.body.decode(errors="replace")))

    def close(self) -> None:
        self._rest.close()
        self._graphql.close()


# What an answer says about further pages, itself or in one of these objects.
_ABOUT_PAGES = re.compile(r"pagination|paging|page_?info|meta(data)?|_?links", re.IGNORECASE)
_NEXT = re.compile(r"next_?(\w*)|(cursor)", re.IGNORECASE)
_MORE = re.compile(r"(has_?)?(more|next)(_?pages?)?", re.IGNORECASE)
_PAGES = re.compile(r"total_?pages?|page_?count", re.IGNORECASE)
_ITEMS = re.compile(r"total(_?(count|items|results|records))?", re.IGNORECASE)


def _next(answer: Body, name: str, pages_read: int, items_read: int) -> str:
    """Empty: there is no further page. A link, or `parameter=value`."""
    inner = [value for key, value in answer.items() if isinstance(value, Mapping) and _ABOUT_PAGES.fullmatch(key)]
    goes_on = False
    for key, value in (item for each in (answer, *inner) for item in each.items()):
        if key == name or not value:
            continue
        if type(value) in (str, int) and (found := _NEXT.fullmatch(key)):
            parameter, text = found[1] or found[2] or "cursor", str(value)
            return text if text.startswith("http") else f"{parameter[0].lower()}{parameter[1:]}={text}"
        if type(value) is int:
            goes_on |= bool(_PAGES.fullmatch(key)) and value > pages_read
            goes_on |= bool(_ITEMS.fullmatch(key)) and value > items_read
        else:
            goes_on |= bool(_MORE.fullmatch(key) or _NEXT.fullmatch(key))
    if goes_on:
        raise Transient(f"Runpod's list of {name} goes on, and doesn't say how.")
    return ""


def _lines(stream: str) -> Iterator[Line]:
    """The lines of the events that came whole."""
    for text in stream.splitlines():
        if text.startswith("data:"):
            try:
                event = orjson.loads(text.removeprefix("data:"))
            except orjson.JSONDecodeError:
                continue
            if isinstance(event, Mapping) and isinstance(line := event.get("line"), str):
                yield Line(event.get("source") == "container", line)


def _listened(call: RestCall, deadline: float) -> RestAnswer:
    """`deadline`: until the answer's body begins. From then on, it is read until nothing has come for a moment."""
    from http.client import HTTPConnection, HTTPException, HTTPSConnection

    home, body = urlsplit(call.origin), bytearray()
    made_by = HTTPSConnection if home.scheme == "https" else HTTPConnection
    connection = made_by(home.netloc, timeout=deadline)
    until = time.monotonic() + 2 * deadline
    try:
        connection.connect()
        socket = connection.sock
        connection.request(call.method, f"{call.path}?{urlencode(call.query)}", headers=dict(call.headers))
        answer = connection.getresponse()
        try:
            while time.monotonic() < until and len(body) < 1 << 20 and (piece := answer.read1(1 << 16)):
                body += piece
                socket.settimeout(QUIET)
        except TimeoutError:
            pass
        return RestAnswer(answer.status, {}, bytes(body))
    except (HTTPException, OSError) as error:
        raise NoAnswer(f"{type(error).__name__}: {error}") from error
    finally:
        connection.close()
