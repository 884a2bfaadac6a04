"""Procedure calls over gRPC: one attempt each, with a deadline; and Google's codes of failures, by the numbers that
operations and parts of answers have in their place."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, Protocol

LARGEST = 64 << 20  # bytes of an answer
IDLE = 60_000  # milliseconds until a connection is given up; who is between may forget it after some minutes
DETAILS = "grpc-status-details-bin"
_NAMES = (
    *("OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS"),
    *("PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED"),
    *("INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED"),
)


class CallFailed(Exception):
    """The answer is an error, or there is none. `details`: an encoded google.rpc.Status; may be empty."""

    def __init__(self, code: str, text: str, details: bytes = b"") -> None:
        super().__init__(code)
        self.code, self.text, self.details = code, text, details


class Wire(Protocol):
    def __call__(
        self, host: str, path: str, content: bytes, metadata: Sequence[tuple[str, str]], deadline: float
    ) -> bytes:
        """Raises CallFailed. `path`: /package.Service/Method."""

    def close(self) -> None: ...


class GrpcWire:
    """A connection for each host."""

    def __init__(self, endpoint: str = "") -> None:
        """`endpoint`: `http://host:port`, which answers for every host, without encryption."""
        self._endpoint = endpoint.removeprefix("http://")
        self._channels: dict[str, Any] = {}
        self._lock = threading.Lock()

    def __call__(
        self, host: str, path: str, content: bytes, metadata: Sequence[tuple[str, str]], deadline: float
    ) -> bytes:
        import grpc

        call = self._channel(self._endpoint or host).unary_unary(path)  # without serializers: bytes in, bytes out
        try:
            answer: bytes = call(content, metadata=tuple(metadata), timeout=deadline)
        except grpc.RpcError as error:
            found = {key: value for key, value in error.trailing_metadata() or () if key == DETAILS}
            raise CallFailed(error.code().name, error.details() or "", found.get(DETAILS, b"")) from None
        return answer

    def close(self) -> None:
        with self._lock:
            channels, self._channels = self._channels, {}
        for channel in channels.values():
            channel.close()

    def _channel(self, address: str) -> Any:
        import grpc

        with self._lock:
            if address not in self._channels:
                options = [
                    ("grpc.enable_retries", 0),  # the engine repeats calls, and must know of each refusal
                    ("grpc.max_receive_message_length", LARGEST),
                    ("grpc.client_idle_timeout_ms", IDLE),
                    ("grpc.enable_http_proxy", int(not self._endpoint)),  # which is on this machine
                ]
                self._channels[address] = (
                    grpc.insecure_channel(address, options)
                    if self._endpoint
                    else grpc.secure_channel(address, grpc.ssl_channel_credentials(), options)
                )
            return self._channels[address]


def code_of(number: int) -> str:
    """A number that is none is its own name. 0 is no failure, and has none."""
    if not number:
        return ""
    return _NAMES[number] if 0 < number < len(_NAMES) else str(number)
