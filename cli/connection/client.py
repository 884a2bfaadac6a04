"""HTTP to the control plane: JSON over one kept-alive connection, and errors as sentences that say what to do.

Connecting is tried three times, a second apart. A request that was sent is repeated only if the server had closed our
idle connection; after any other broken response it may have been carried out.
"""

from __future__ import annotations

import http.client
import json
import socket
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, quote, urlencode, urlsplit

from chalicelib.errors import DstackError, Forbidden, Invalid, NotFound, NotSupported, Refused
from chalicelib.loopback import is_loopback
from cli.screen.problems import problems_in

if TYPE_CHECKING:
    from chalicelib.contract.bodies import StreamQuery
    from cli.connection.streams import Stream

API_VERSION = "0.22.5"  # of the API that this client uses
CONNECT_ATTEMPTS = 3
CONNECT_TIMEOUT = 10.0
ANSWER_TIMEOUT = 300.0  # long polls end much sooner

Query = Mapping[str, object]
Answer = Any  # JSON, whose type `calls` names
Dial = Callable[[SplitResult], http.client.HTTPConnection]


def dial(parts: SplitResult) -> http.client.HTTPConnection:
    """A connection to the server at an address. Raises OSError if that fails."""
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.hostname or "", parts.port, timeout=CONNECT_TIMEOUT)
    try:
        connection.connect()
    except OSError:
        connection.close()
        raise
    connection.sock.settimeout(ANSWER_TIMEOUT)
    connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def in_clear(url: str) -> str:
    """A warning if requests to this server aren't encrypted on their way to another machine; else empty."""
    if urlsplit(url).scheme == "https" or is_loopback(url):
        return ""
    return f"{url} isn't https: your token can be read on its way. Ask the server's operator for an https address."


class Client:
    """Requests to one server with one token. `via`: another way to connect than HTTP."""

    def __init__(
        self,
        url: str,
        token: str,
        project: str = "",
        *,
        sleep: Callable[[float], None] = time.sleep,
        via: Dial | None = None,
    ) -> None:
        parts = _address(url)
        if not (token.isascii() and token.isprintable()):
            raise Refused(
                "The token contains a line break or another character that tokens can't have.",
                hint="Set DSTACK_TOKEN again, or fix the project's entry in ~/.dstack/config.yml.",
            )
        self.url, self.project = url.rstrip("/"), project
        self.token, self._sleep, self._dial = token, sleep, via or dial
        self._parts, self._prefix = parts, parts.path.rstrip("/")
        self._connection: http.client.HTTPConnection | None = None
        self.traceparent = ""  # of the trace that requests are part of

    def close(self) -> None:
        if self._connection:
            self._connection.close()
            self._connection = None

    def post(self, path: str, body: object = None) -> Answer:
        """The response to a POST; `body` None sends none, as the contract requires for calls without parameters."""
        data = None if body is None else json.dumps(body, separators=(",", ":")).encode()
        return self._request("POST", path, data, "application/json" if data is not None else "")

    def get(self, path: str, query: Query | None = None) -> Answer:
        return self._request("GET", _with_query(path, query), None, "")

    def in_project(self, path: str, body: object = None) -> Answer:
        """POST to `path` under the project."""
        return self.post(f"{self._project_path}/{path}", body)

    def get_in_project(self, path: str, query: Query | None = None) -> Answer:
        return self.get(f"{self._project_path}/{path}", query)

    def upload_in_project(self, path: str, name: str, data: bytes, query: Query | None = None) -> Answer:
        return self.upload(f"{self._project_path}/{path}", name, data, query)

    def upload(self, path: str, name: str, data: bytes, query: Query | None = None) -> Answer:
        """One file as a multipart form, its part called `file` and its file name `name`."""
        boundary = f"dstack-{name[:32]}"  # a hash of the data, so it can't occur in it
        head = f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n\r\n'
        body = head.encode() + data + f"\r\n--{boundary}--\r\n".encode()
        return self._request("POST", _with_query(path, query), body, f"multipart/form-data; boundary={boundary}")

    def stream(self, run_name: str, query: StreamQuery) -> Stream:
        """A stream to a job of a run, as soon as its machine has connected. `query`: `target`, `replica`, `job`, ..."""
        if self._dial is not dial:
            raise NotSupported("This connection to the server can't carry streams.")
        from cli.connection.streams import NoStream, open_stream

        path = _with_query(f"{self._project_path}/streams/{quote(run_name, safe='')}", query)
        try:
            return open_stream(self._parts, self._prefix + path, self._headers())
        except NoStream as other:
            raise failure(other.status, other.answer, self.url, self.project, path) from None
        except (OSError, http.client.HTTPException) as error:
            raise Refused(f"The server at {self.url} opened no stream ({_reason(error)}).") from error

    @property
    def _project_path(self) -> str:
        return f"/api/project/{quote(self.project, safe='')}"

    def _request(self, method: str, path: str, body: bytes | None, content_type: str) -> Answer:
        headers = self._headers()
        if content_type:
            headers["Content-Type"] = content_type
        status, data = self._exchange(method, self._prefix + path, body, headers)
        try:
            answer = _decoded(data)
        except (ValueError, RecursionError):
            answer = None
            if status < 400:
                raise Refused(
                    f"The program at {self.url} is not a control plane: its response is not JSON in UTF-8.",
                    hint="Check the URL of the project: `dstack project list`.",
                ) from None
        if status >= 400:
            raise failure(status, answer, self.url, self.project, path)
        return answer

    def _headers(self) -> dict[str, str]:
        traced = {"traceparent": self.traceparent} if self.traceparent else {}
        known = {"X-API-VERSION": API_VERSION, "Accept": "application/json"}
        return {"Authorization": f"Bearer {self.token}", **known, **traced}

    def _exchange(self, method: str, path: str, body: bytes | None, headers: dict[str, str]) -> tuple[int, bytes]:
        reused = self._connection is not None
        connection = self._connection or self._connect()
        try:
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            data = response.read()
            response.close()  # else its finalizer does so, and Python ignores a Ctrl-C that comes during a finalizer
        except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError) as error:
            self.close()
            if reused:  # it was idle and the server closed it
                return self._exchange(method, path, body, headers)
            raise self._broken(error) from error
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise self._broken(error) from error
        except KeyboardInterrupt:  # or its response would be taken for that of the next request
            self.close()
            raise
        if response.will_close:
            self.close()
        if is_redirect(response.status):
            raise redirected(self.url, response.status, response.getheader("Location"))
        return response.status, data

    def _connect(self) -> http.client.HTTPConnection:
        for attempt in range(1, CONNECT_ATTEMPTS + 1):
            try:
                self._connection = self._dial(self._parts)
                break
            except OSError as error:
                if attempt == CONNECT_ATTEMPTS:
                    raise Refused(
                        f"No server answers at {self.url} ({_reason(error)}).",
                        hint="Is it running? Start one with `dstack server`, or look at `dstack project list`.",
                    ) from error
                self._sleep(1.0)
        assert self._connection is not None
        return self._connection

    def _broken(self, error: Exception) -> Refused:
        return Refused(
            f"The connection to {self.url} was lost before the response arrived ({_reason(error)}).",
            hint="Before you repeat the request, check with `dstack ps` or `dstack fleet` whether it was carried out.",
        )


def is_redirect(status: int) -> bool:
    return 300 <= status < 400 and status != 304  # which says that what the caller has is the latest


def redirected(url: str, status: int, location: str | None) -> Refused:
    """A redirect isn't followed: the request has a token, and the address that it names may be anybody's."""
    place = f"It points to {location}. " if location else ""
    return Refused(
        f"The server at {url} redirected the request (HTTP {status}) instead of answering it.",
        hint=f"{place}Is the URL right, for instance its http or https?",
    )


def _with_query(path: str, query: Query | None) -> str:
    given = {key: value for key, value in (query or {}).items() if value is not None}
    return f"{path}?{urlencode(given)}" if given else path


class _Object(dict[str, object]):
    """An object of an answer. A server of another version may lack keys that this command line needs."""

    def __missing__(self, key: str) -> object:
        raise Refused(
            f"The server's response lacks `{key}`: its version and this command line's don't fit.",
            hint="Upgrade the older of the two, or install the command line that belongs to the server.",
        )


def _decoded(data: bytes) -> object:
    """The parsed JSON. Raises ValueError for anything else, and for texts with half a surrogate pair, which UTF-8
    lacks."""
    answer = json.loads(data.decode(), object_hook=_Object) if data else None
    if b"\\u" in data:
        json.dumps(answer, ensure_ascii=False).encode()
    return answer


def _address(url: str) -> SplitResult:
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        known = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:  # an unmatched bracket, or an invalid port
        known = False
    if not known or not url.isprintable() or " " in url:
        raise Refused(f"{url!r} is not a server's address.", hint="It looks like http://127.0.0.1:3000.")
    return parts


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "it took too long"
    return str(getattr(error, "strerror", None) or error or type(error).__name__).lower()


def failure(status: int, answer: object, url: str, project: str, path: str) -> DstackError:
    """The error for a response of 400 or more."""
    text = _message(answer)
    if status == 400:
        return _refusal(answer, text or f"The server refused the request to {path} and gave no reason.")
    if status in (401, 403):
        reason = f" ({text.rstrip('.')})" if text else ""
        return Forbidden(
            f"The server at {url} doesn't let this token do that{reason}.",
            hint="If the token has changed, add the project again: "
            f"`dstack project add --name {project or 'NAME'} --url {url} --token TOKEN`.",
        )
    if status == 404 and project and f"/{quote(project, safe='')}/" in path + "/" and "Not found" in text:
        return NotFound(f"The server at {url} has no project {project}.", hint="See yours with `dstack project list`.")
    if status in (404, 405):
        return Refused(f"The server at {url} doesn't know {path}.", hint="Is the URL right, and the server up to date?")
    if status == 422:
        return Refused(f"The server can't accept the request:\n{_validation(answer)}")
    if status == 413:
        return Refused(text or "The request is larger than the server accepts.", hint="Send smaller files.")
    kind = "failed" if status >= 500 else "refused the request"
    return Refused(
        f"The server at {url} {kind} (HTTP {status}){': ' + text if text else ''}.",
        hint="Its log says more; try again in a moment." if status >= 500 else "",
    )


def _refusal(answer: object, text: str) -> DstackError:
    entry = _entry(answer)
    if entry.get("code") == "resource_not_exists":
        return NotFound(text)
    problems = problems_in(entry)
    return Invalid(problems) if problems else Refused(text)


def _detail(answer: object) -> object:
    return answer.get("detail") if isinstance(answer, dict) else None


def _message(answer: object) -> str:
    detail = _detail(answer)
    if isinstance(detail, list):
        return "\n".join(str(item.get("msg", "")) for item in detail if isinstance(item, dict))
    if isinstance(detail, dict):
        return str(detail.get("msg") or "")
    return str(detail or "")


def _entry(answer: object) -> Mapping[str, object]:
    detail = _detail(answer)
    first = detail[0] if isinstance(detail, list) and detail else None
    return first if isinstance(first, dict) else {}


def _validation(answer: object) -> str:
    detail = _detail(answer)
    if not isinstance(detail, list):
        return f"  {detail or 'it gave no details'}"
    lines = []
    for item in detail:
        if isinstance(item, dict):
            place = ".".join(str(part) for part in item.get("loc") or () if part != "body")
            lines.append(f"  {place}: {item.get('msg', '')}" if place else f"  {item.get('msg', '')}")
    return "\n".join(lines)
