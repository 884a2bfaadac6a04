"""Sending one state change to one webhook."""

from __future__ import annotations

import http.client
import ssl
from collections.abc import Callable, Mapping
from typing import NamedTuple
from urllib.parse import urlsplit

from chalicelib.configuration.server_spec import WebhookConfig
from chalicelib.domain.instants import SECOND, retry_after
from chalicelib.domain.state_changes import StateChange
from chalicelib.domain.webhooks import headers
from chalicelib.engine.ports import Clock
from chalicelib.engine.subscriptions import NotNow
from chalicelib.errors import Refused

PATIENCE = 10.0  # seconds for the connection, and for each part of the response's head; its body isn't read


class ReceiverAnswer(NamedTuple):
    status: int
    retry_after: str = ""


Send = Callable[[str, Mapping[str, str], bytes], ReceiverAnswer]  # of address, headers and body


def sender(hook: WebhookConfig, clock: Clock, send: Send | None = None) -> Callable[[StateChange], None]:
    post_ = send or post

    def deliver(change: StateChange) -> None:
        body = change.model_dump_json().encode()
        answer = post_(hook.url, headers(hook.secret, change.id, clock.now() // SECOND, body), body)
        if not 200 <= answer.status < 300:
            wait = retry_after(answer.retry_after, clock.now())
            raise NotNow(f"{urlsplit(hook.url).hostname} answered {answer.status}", wait)

    return deliver


def post(url: str, headers: Mapping[str, str], body: bytes) -> ReceiverAnswer:
    """Refuses redirects: a signed message is only for the configured address."""
    parts = urlsplit(url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.hostname or "", parts.port, timeout=PATIENCE)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    try:
        connection.request("POST", path, body, dict(headers))
        answer = connection.getresponse()
        return ReceiverAnswer(answer.status, answer.headers.get("Retry-After", ""))
    except (OSError, http.client.HTTPException, ssl.SSLError) as error:
        raise Refused(f"{parts.hostname} can't be reached: {error or type(error).__name__}") from error
    finally:
        connection.close()
