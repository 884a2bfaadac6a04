"""Calls to AWS: one client per service and region, one attempt per call, every failure as one of our errors.

The SDK's own retries are off. They would repeat calls that failed for lack of capacity, and would hide throttling,
which the engine must know about.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from chalicelib.backends.aws.config import AWSKeyCreds
from chalicelib.backends.aws.errors import translated
from chalicelib.backends.kit.paging import pages
from chalicelib.domain.specs.credentials import DefaultCreds

CONNECT, READ = 5.0, 50.0  # seconds; a launch may take most of a minute
POOL = 16  # connections of a client
PAGE = 500  # items per page of a listing, if the call allows as many


class Clients:
    def __init__(
        self,
        creds: AWSKeyCreds | DefaultCreds,
        *,
        endpoint: str | None = None,
        session: Callable[[], Any] | None = None,
    ) -> None:
        """`endpoint`: replaces the regions' endpoints, for an emulator. `session` creates the SDK's session."""
        self._creds, self._endpoint = creds, endpoint
        self._new_session = session or self._logged_in
        self._session: Any = None
        self._open: dict[tuple[str, str], Any] = {}
        self._lock = threading.Lock()

    def call(self, service: str, region: str, operation: str, **params: Any) -> dict[str, Any]:
        """One call, one attempt. `operation` is the name of the SDK's method."""
        action = f"{service}:{''.join(map(str.capitalize, operation.split('_')))}"
        try:
            client = self._client(service, region)
            answer: dict[str, Any] = getattr(client, operation)(**params)
        except _failures() as error:
            raise translated(error, action, region) from error
        return answer

    def pages(self, service: str, region: str, operation: str, key: str, **params: Any) -> Iterator[dict[str, Any]]:
        """The items under `key` on every page."""

        def page(token: str) -> tuple[Iterable[dict[str, Any]], str]:
            more = {"NextToken": token} if token else {}
            answer = self.call(service, region, operation, **params, **more)
            return answer.get(key, ()), answer.get("NextToken") or ""

        return pages(page)

    def close(self) -> None:
        with self._lock:
            clients, self._open = self._open, {}
        for client in clients.values():
            client.close()

    def _client(self, service: str, region: str) -> Any:
        with self._lock:  # a session can create only one client at a time
            client = self._open.get((service, region))
            if client is None:
                from botocore.config import Config

                if self._session is None:
                    self._session = self._new_session()
                config = Config(
                    retries={"total_max_attempts": 1},
                    connect_timeout=CONNECT,
                    read_timeout=READ,
                    max_pool_connections=POOL,
                )
                client = self._session.client(service, region_name=region, endpoint_url=self._endpoint, config=config)
                self._open[service, region] = client
            return client

    def _logged_in(self) -> Any:
        import boto3

        if isinstance(self._creds, DefaultCreds):
            return boto3.Session()
        return boto3.Session(self._creds.access_key, self._creds.secret_key, self._creds.session_token)


def _failures() -> tuple[type[Exception], ...]:
    """What the SDK raises if a call fails. Anything else is a mistake of ours."""
    from botocore.exceptions import BotoCoreError, ClientError
    from botocore.parsers import ResponseParserError

    return BotoCoreError, ClientError, ResponseParserError
