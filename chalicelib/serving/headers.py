"""How headers are rewritten: hop-by-hop headers are dropped, and headers about the caller and the address are added.

A client can't forge what the door says about it: `X-Forwarded-Proto`, `-Host` and `-Prefix` are replaced, the door's
entry is the last in `X-Forwarded-For`, and the other headers of `OURS` are dropped. They, and headers that frame a
message, are also dropped when spelled with a `_`, which many applications read as a `-`. Where the door has checked the
caller's token, the application doesn't get it: it could impersonate the caller.

A service without a host of its own shares the server's, and so the origin of the console. Its pages are given an origin
of their own (`SANDBOX`), and it can't say what holds for the whole origin.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

Raw = Iterable[tuple[bytes, bytes]]  # names in lower case

MOST = 16 * 1024  # bytes of a request's headers
MOST_LINES = 128  # of a request's headers
FRAME = frozenset((b"host", b"content-length", b"transfer-encoding"))  # `Connection` can't remove these
_HOP = (
    b"connection",
    b"keep-alive",
    b"proxy-authenticate",
    b"proxy-authorization",
    b"proxy-connection",
    b"te",
    b"trailer",
    b"transfer-encoding",
    b"upgrade",
    b"http2-settings",
    b"expect",
)
OURS = (  # who sent the request, and how: only proxies may set these
    b"forwarded",
    b"x-forwarded-for",
    b"x-forwarded-proto",
    b"x-forwarded-host",
    b"x-forwarded-prefix",
    b"x-forwarded-port",
    b"x-forwarded-server",
    b"x-forwarded-scheme",
    b"x-forwarded-ssl",
    b"x-forwarded-by",
    b"x-forwarded-protocol",
    b"x-forwarded-uri",
    b"x-forwarded-method",
    b"x-forwarded-user",
    b"x-forwarded-email",
    b"x-forwarded-groups",
    b"x-real-ip",
    b"x-request-id",
)


def spellings(name: bytes) -> list[bytes]:
    """All spellings that many applications read as this name: with a `_` in place of some `-`."""
    first, *words = name.split(b"-")
    found = [first]
    for word in words:
        found = [before + sign + word for before in found for sign in (b"-", b"_")]
    return found


_SPELT = frozenset(each for name in (*_HOP, *OURS) for each in spellings(name)) | {b"content_length"}
_DROPPED, _DROPPED_IF_JUDGED = _SPELT, _SPELT | {b"authorization"}
_DROPPED_BACK = frozenset(_HOP) | {b"x-request-id", b"x-replica"}  # of a response: the door sets the last two
_OF_ORIGIN = frozenset(  # of a response: they hold for all that the server's host has, not only for one service
    (b"service-worker-allowed", b"clear-site-data", b"strict-transport-security", b"alt-svc", b"nel", b"report-to")
)
SANDBOX = b"sandbox allow-scripts allow-forms allow-popups allow-downloads allow-modals"
_NONE: frozenset[bytes] = frozenset()
_ID = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.:")
LONGEST_ID = 128


class Origin(NamedTuple):
    """Who sent a request, and how."""

    address: str
    proto: str
    host: str
    prefix: str
    request_id: str


def size(headers: Raw) -> int:
    """The bytes of these headers on the wire."""
    return sum(len(name) + len(value) + 4 for name, value in headers)


def one(headers: Raw, name: bytes) -> bytes | None:
    """The value of a header that may occur once; None if it occurs twice, because two readers might differ in which one
    they take."""
    found = [value for key, value in headers if key == name]
    return found[0] if len(found) == 1 else None


def listed(headers: Raw) -> frozenset[bytes]:
    """The headers that `Connection` declares to be hop-by-hop, except those that frame the message or name its host:
    dropping them would turn it into another message for the next reader."""
    values = [value for key, value in headers if key == b"connection"]
    if not values:
        return _NONE
    return frozenset(word.strip().lower() for value in values for word in value.split(b",")) - FRAME


def request_id(headers: Raw, otherwise: Callable[[], str]) -> str:
    """The client's own id for its request, if it is well-formed, else `otherwise()`."""
    given = one(headers, b"x-request-id")
    good = given and len(given) <= LONGEST_ID and _ID.issuperset(given)
    return given.decode("ascii") if given and good else otherwise()


def onward(headers: Raw, origin: Origin, *, judged: bool) -> list[tuple[bytes, bytes]]:
    """The headers for the replica. `judged`: the door has checked the caller's token."""
    headers = list(headers)
    dropped = _DROPPED_IF_JUDGED if judged else _DROPPED
    if named := listed(headers):
        dropped |= named
    passed = [each for each in headers if each[0] not in dropped]
    before = [value for name, value in headers if name == b"x-forwarded-for"]
    passed.append((b"x-forwarded-for", b", ".join((*before, origin.address.encode()))))
    passed.append((b"x-forwarded-proto", origin.proto.encode()))
    passed.append((b"x-forwarded-host", origin.host.encode("latin-1")))
    if origin.prefix:
        passed.append((b"x-forwarded-prefix", origin.prefix.encode()))
    passed.append((b"x-request-id", origin.request_id.encode()))
    return passed


def back(headers: Raw, request_id: str, replica: str, prefix: str = "") -> list[tuple[bytes, bytes]]:
    """The headers for the client, from a replica's response. `prefix`: of the service's paths, if it has no host."""
    headers = [(name.lower(), value) for name, value in headers]
    dropped = _DROPPED_BACK | _OF_ORIGIN if prefix else _DROPPED_BACK
    if named := listed(headers):
        dropped |= named
    passed = [each for each in headers if each[0] not in dropped]
    if any(name == b"set-cookie" for name, _ in passed):
        passed = list(_with_scoped(passed, prefix.encode()))
    if prefix:
        passed.append((b"content-security-policy", SANDBOX))  # one more policy: the service's own holds, too
    return [*passed, (b"x-request-id", request_id.encode()), (b"x-replica", replica.encode())]


def _with_scoped(headers: Raw, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
    for name, value in headers:
        if name != b"set-cookie":
            yield name, value
        elif cookie := scoped(value, prefix):
            yield name, cookie


def scoped(cookie: bytes, prefix: bytes) -> bytes:
    """A cookie restricted to this service: to its host and, under a prefix, to its path. Empty: that is impossible."""
    first, *attributes = cookie.split(b";")
    named = [(each.partition(b"=")[0].strip().lower(), each) for each in attributes]
    parts = [first, *(each for name, each in named if name not in ((b"domain", b"path") if prefix else (b"domain",)))]
    if not prefix:
        return b";".join(parts)
    if first.lstrip().lower().startswith(b"__host-"):
        return b""  # browsers accept it only for all paths of a host
    paths = [each.partition(b"=")[2].strip() for name, each in named if name == b"path"]
    if paths and paths[-1].startswith(b"/"):
        inside = paths[-1] == prefix or paths[-1].startswith(prefix + b"/")
        parts.append(b" Path=" + (paths[-1] if inside else prefix + paths[-1]))
    return b";".join(parts)
