"""Calls to API servers with Kubernetes' own client: one attempt per call, every failure as one of our errors.

The client brings the connection, its certificates and the credentials. Bodies are plain data both ways, because its
models would cost ten times as much for a list of pods.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import orjson

from chalicelib.backends.kit.clock import Now
from chalicelib.backends.kit.errors import Kind, ProviderFailure, cleaned, described
from chalicelib.backends.kit.paging import pages
from chalicelib.backends.kubernetes.addresses import LocalAddress, refuse_local_addresses
from chalicelib.backends.kubernetes.errors import TABLE
from chalicelib.backends.kubernetes.kubeconfig import Cluster
from chalicelib.domain.instants import SECOND, retry_after
from chalicelib.errors import Bug, InvalidCredentials, Transient

Body = dict[str, Any]
CONNECT, READ = 5.0, 15.0  # seconds
PAGE = 500  # items of a list's page
LONGEST_LINE = 8 << 20  # bytes: far more than an object may have
MERGE = "application/strategic-merge-patch+json"  # changes one item of a list and leaves those of others


class Clusters:
    def __init__(self, found: Sequence[Cluster], now: Now, *, page: int = PAGE) -> None:
        self._known = {cluster.region: cluster for cluster in found}
        self._now, self.page = now, page
        self._made: dict[str, _Connection] = {}
        self._closed = False
        self._lock = threading.Lock()

    @property
    def regions(self) -> tuple[str, ...]:
        return tuple(self._known)

    def cluster(self, region: str) -> Cluster:
        """Raises InvalidCredentials if no context has this name (any more): that proves nothing about what is there."""
        if region not in self._known:
            raise InvalidCredentials(
                f"The configuration of the clusters has no context {region!r}.",
                hint=f"It has {', '.join(self._known)}.",
            )
        return self._known[region]

    def call(
        self,
        region: str,
        method: str,
        path: Sequence[str],
        *,
        query: Mapping[str, str | int] | None = None,
        body: Any = None,
        content_type: str = "application/json",
        meanings: Mapping[str | int, Kind] | None = None,
        secrets: Sequence[str] = (),
    ) -> Body:
        """The decoded answer. `path`: its segments, each of which is quoted. `content_type`: of the body. `meanings`:
        reasons and statuses that mean something else for this call. `secrets`: those in its body."""
        action, hidden = _action(method, path), (*secrets, *self.cluster(region).secrets)
        with _translated(action, region, hidden):
            answer = self._sent(region, method, path, query or {}, body, content_type, READ)
            status, headers, data = answer.status, answer.headers, answer.read()
        found = self._read(status, headers, data)
        if isinstance(found, ProviderFailure):
            raise TABLE.error(found, action, region, meanings=meanings, secrets=hidden)
        return found

    def listed(self, region: str, path: Sequence[str], **query: str) -> Iterator[Body]:
        """The items on every page. A list is never Gone: one that isn't found isn't empty."""
        return pages(lambda token: self._page(region, path, query, token)[:2])

    def listing(self, region: str, path: Sequence[str], **query: str) -> tuple[list[Body], str]:
        """All items, and the version of which they are, from which a watch can go on."""
        version = ""

        def page(token: str) -> tuple[Iterable[Body], str]:
            nonlocal version
            items, following, of_page = self._page(region, path, query, token)
            version = version or of_page
            return items, following

        items = list(pages(page))
        return items, version

    def any(self, region: str, path: Sequence[str], **query: str) -> bool:
        """Is there an item? One at most is read."""
        answer = self.call(region, "GET", path, query={**query, "limit": 1}, meanings={"NotFound": Transient})
        return bool(answer.get("items"))

    def _page(
        self, region: str, path: Sequence[str], query: Mapping[str, str], token: str
    ) -> tuple[Iterable[Body], str, str]:
        more = {"continue": token} if token else {}
        page_query: dict[str, str | int] = {**query, "limit": self.page, **more}
        answer = self.call(region, "GET", path, query=page_query, meanings={"NotFound": Transient})
        if not str(answer.get("kind", "")).endswith("List"):
            raise Transient(f"GET /{'/'.join(path)} in {region}: the answer is no list of an API server.")
        metadata = answer.get("metadata", {})
        return answer.get("items") or (), metadata.get("continue") or "", str(metadata.get("resourceVersion", ""))

    def stream(self, region: str, path: Sequence[str], query: Mapping[str, str | int], silence: float) -> LineStream:
        """An answer that goes on. `silence`: the longest that there may be before it counts as cut, in seconds."""
        action, hidden = _action("GET", path), self.cluster(region).secrets
        with _translated(action, region, hidden):
            answer = self._sent(region, "GET", path, query, None, "application/json", silence)
            data = answer.read() if answer.status != 200 else b""
        if answer.status != 200:
            found = self._read(answer.status, answer.headers, data)
            failure = (
                found if isinstance(found, ProviderFailure) else ProviderFailure("", "it is no stream", answer.status)
            )
            raise TABLE.error(failure, action, region, secrets=hidden)
        return LineStream(answer, lambda: _translated(action, region, hidden))

    def close(self) -> None:
        with self._lock:
            made, self._made, self._closed = self._made, {}, True
        for connection in made.values():
            connection.close()

    def _sent(
        self,
        region: str,
        method: str,
        path: Sequence[str],
        query: Mapping[str, str | int],
        body: Any,
        content_type: str,
        patience: float,
    ) -> Any:
        """The answer, of which nothing is read yet."""
        from urllib3 import Timeout

        connection = self._connection(region)
        target = "".join(f"/{_segment(part)}" for part in path)
        headers = connection.headers(method, target)
        if body is not None:
            headers["Content-Type"] = content_type
        return connection.pool.urlopen(
            method,
            f"{connection.base}{target}{f'?{urlencode(query)}' if query else ''}",
            body=None if body is None else orjson.dumps(body),
            headers=headers,
            timeout=Timeout(connect=CONNECT, read=patience),
            preload_content=False,
        )

    def _read(self, status: int, headers: Mapping[str, str], data: bytes) -> Body | ProviderFailure:
        try:
            body = orjson.loads(data)
        except orjson.JSONDecodeError:
            body = None
        if not isinstance(body, dict):  # its text may be anything that the address serves, so nobody is shown it
            return ProviderFailure("", "the answer isn't an API server's (no JSON)", status if status >= 300 else 0)
        if 200 <= status < 300:
            return body
        found = described(body, status)
        wait = headers.get("retry-after", "")
        seconds = retry_after(wait, self._now()) / SECOND if wait else 0.0
        code = "" if found.code == "NotFound" and body.get("kind") != "Status" else found.code
        return ProviderFailure(code, found.text, status, seconds)

    def _connection(self, region: str) -> _Connection:
        with self._lock:
            if self._closed:
                raise Transient(f"The connections to {region} are closed.")
            found = self._made.get(region)
            if found is None:
                found = self._made[region] = _Connection(_client(self._known[region]))
            return found


class _Connection:
    """What the official client knows of a cluster, without its layers for requests, which cost more than ours."""

    def __init__(self, client: Any) -> None:
        host, pools = client.configuration.host, client.rest_client.pool_manager
        self.client, self.pool = client, pools.connection_from_url(host)
        address = urlsplit(host)
        through_proxy = pools.proxy is not None and address.scheme == "http"  # which needs the whole address
        self.base = host if through_proxy else address.path.rstrip("/")

    def headers(self, method: str, target: str) -> dict[str, str]:
        """With the credentials, as they are now."""
        found = {"Accept": "application/json", **self.client.default_headers}
        self.client.update_params_for_auth(found, [], ["BearerToken"], target, method, None)
        return found

    def close(self) -> None:
        self.client.close()


class LineStream:
    """The lines of an answer that goes on, as they come."""

    def __init__(self, response: Any, translated: Callable[[], AbstractContextManager[None]]) -> None:
        self._response, self._translated = response, translated

    def __iter__(self) -> Iterator[bytes]:
        """Raises Transient if it is cut."""
        rest = b""
        with self._translated():
            for piece in self._response.stream():
                *lines, rest = (rest + piece).split(b"\n")
                yield from filter(None, lines)
                if len(rest) > LONGEST_LINE:
                    raise OSError(f"a line is longer than {LONGEST_LINE} bytes")

    def end(self) -> None:
        """Wake whoever waits for a line, from another thread."""
        with suppress(ValueError, RuntimeError, OSError):  # it has ended
            self._response.shutdown()

    def close(self) -> None:
        self._response.close()


@contextmanager
def _translated(action: str, region: str, hidden: Sequence[str]) -> Iterator[None]:
    """Failures of the connection, and of the credentials, as our errors."""
    from kubernetes.client.exceptions import OpenApiException
    from kubernetes.config import ConfigException
    from urllib3.exceptions import HTTPError

    try:
        yield
    except ConfigException as error:
        text = cleaned(f"{type(error).__name__}: {error}", hidden)
        raise InvalidCredentials(f"The credentials for {region} can't be used: {text}") from None
    except LocalAddress as error:
        raise InvalidCredentials(
            f"The name {error} leads to the control plane's own machine.",
            hint="If that is meant, have a global admin write the address in place of the name.",
        ) from None
    except (HTTPError, OpenApiException, OSError) as error:
        text = cleaned(f"{type(error).__name__}: {error}", hidden)
        raise Transient(f"{action} in {region} has no answer: {text}") from None


def _action(method: str, path: Sequence[str]) -> str:
    return f"{method} /{'/'.join(path)}"


def _client(cluster: Cluster) -> Any:
    from kubernetes.client import ApiClient, Configuration
    from kubernetes.config import load_incluster_config, load_kube_config_from_dict

    configuration = Configuration()
    configuration.retries = False
    if cluster.kubeconfig is None:
        load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
    else:
        load_kube_config_from_dict(  # type: ignore[no-untyped-call]
            cluster.kubeconfig, client_configuration=configuration, persist_config=False
        )
    configuration.proxy = configuration.proxy  # as it is now, or the environment would be read for every call
    client = ApiClient(configuration)
    own_proxy = cluster.kubeconfig is None or not cluster.kubeconfig["clusters"][0]["cluster"].get("proxy-url")
    if not cluster.may_be_local and not (configuration.proxy and own_proxy):  # the server's own proxy may be anywhere
        refuse_local_addresses(client.rest_client.pool_manager)
    return client


def _segment(part: str) -> str:
    """Quotes a segment. An empty one, or one of dots, is refused: the call would be about something else."""
    if part in ("", ".", ".."):
        raise Bug(f"{part!r} can't be a part of a path")
    return quote(part, safe="")
