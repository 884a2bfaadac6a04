"""What happens to headers on their way: those of one hop stay behind, and who asked, and where, is added.

What a client says about itself is never passed off as ours: `X-Forwarded-Proto`, `-Host` and `-Prefix` are written
anew, in `X-Forwarded-For` our word is the last, and the others of `OURS` stay behind. So do they, and those that frame
a message, where they are spelled with a `_`, which many applications read as a `-`. Where the door has judged the
caller's token, the application gets no token: it could use it against whoever sent it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

Raw = Iterable[tuple[bytes, bytes]]  # names in lower case

MOST = 16 * 1024  # bytes of a request's headers
MOST_LINES = 128  # of them
FRAME = frozenset((b"host", b"content-length", b"transfer-encoding"))  # no `Connection` removes these
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
OURS = (  # what says who asked, and how: proxies', so never a client's
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
    """As many applications read it: with a `_` for some `-`."""
    first, *words = name.split(b"-")
    found = [first]
    for word in words:
        found = [before + sign + word for before in found for sign in (b"-", b"_")]
    return found


_SPELT = frozenset(each for name in (*_HOP, *OURS) for each in spellings(name)) | {b"content_length"}
_LEFT, _JUDGED = _SPELT, _SPELT | {b"authorization"}  # made once: this is on every request's way
_LEFT_BACK = frozenset(_HOP) | {b"x-request-id", b"x-replica"}  # of a response: those are ours
_NONE: frozenset[bytes] = frozenset()
_ID = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.:")
LONGEST_ID = 128


class Origin(NamedTuple):
    """Who asked, and how."""

    address: str
    proto: str
    host: str
    prefix: str
    request_id: str


def size(headers: Raw) -> int:
    """The bytes of these headers on the wire."""
    return sum(len(name) + len(value) + 4 for name, value in headers)


def one(headers: Raw, name: bytes) -> bytes | None:
    """The value of a header that may come once. Twice: none, because two readers would each take another."""
    found = [value for key, value in headers if key == name]
    return found[0] if len(found) == 1 else None


def listed(headers: Raw) -> frozenset[bytes]:
    """The headers that `Connection` declares to be of this hop. Whoever names one that frames the message, or says
    where it goes, has made it another message for the next reader: those stay."""
    values = [value for key, value in headers if key == b"connection"]
    if not values:
        return _NONE
    return frozenset(word.strip().lower() for value in values for word in value.split(b",")) - FRAME


def request_id(headers: Raw, otherwise: Callable[[], str]) -> str:
    """The client's own id for its request, if that is fit to be repeated."""
    given = one(headers, b"x-request-id")
    good = given and len(given) <= LONGEST_ID and _ID.issuperset(given)
    return given.decode("ascii") if given and good else otherwise()


def onward(headers: Raw, origin: Origin, *, judged: bool) -> list[tuple[bytes, bytes]]:
    """What a replica gets. `judged`: the door has looked at the caller's token."""
    headers = list(headers)
    left = _JUDGED if judged else _LEFT
    if named := listed(headers):
        left |= named
    kept = [each for each in headers if each[0] not in left]
    before = [value for name, value in headers if name == b"x-forwarded-for"]
    kept.append((b"x-forwarded-for", b", ".join((*before, origin.address.encode()))))
    kept.append((b"x-forwarded-proto", origin.proto.encode()))
    kept.append((b"x-forwarded-host", origin.host.encode("latin-1")))
    if origin.prefix:
        kept.append((b"x-forwarded-prefix", origin.prefix.encode()))
    kept.append((b"x-request-id", origin.request_id.encode()))
    return kept


def back(headers: Raw, request_id: str, replica: str, prefix: str = "") -> list[tuple[bytes, bytes]]:
    """What the client gets of a replica's response. `prefix`: of the service's paths, where it has no host."""
    headers = [(name.lower(), value) for name, value in headers]
    left = _LEFT_BACK
    if named := listed(headers):
        left |= named
    kept = [each for each in headers if each[0] not in left]
    if any(name == b"set-cookie" for name, _ in kept):
        kept = list(_with_scoped(kept, prefix.encode()))
    return [*kept, (b"x-request-id", request_id.encode()), (b"x-replica", replica.encode())]


def _with_scoped(headers: Raw, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
    for name, value in headers:
        if name != b"set-cookie":
            yield name, value
        elif cookie := scoped(value, prefix):
            yield name, cookie


def scoped(cookie: bytes, prefix: bytes) -> bytes:
    """A cookie as only this service gets it back: for no other host and, below a prefix, for no other path. Empty: it
    can't be had there."""
    first, *attributes = cookie.split(b";")
    named = [(each.partition(b"=")[0].strip().lower(), each) for each in attributes]
    kept = [first, *(each for name, each in named if name not in ((b"domain", b"path") if prefix else (b"domain",)))]
    if not prefix:
        return b";".join(kept)
    if first.lstrip().lower().startswith(b"__host-"):
        return b""  # which is for all paths of a host
    paths = [each.partition(b"=")[2].strip() for name, each in named if name == b"path"]
    if paths and paths[-1].startswith(b"/"):
        inside = paths[-1] == prefix or paths[-1].startswith(prefix + b"/")
        kept.append(b" Path=" + (paths[-1] if inside else prefix + paths[-1]))
    return b";".join(kept)
