"""The errors that a door sends in place of an application's response: JSON that says what happened and how to fix it.

Clients of OpenAI's API expect its error format, so requests under a model's prefix get that one; all others get the
format of this server's API.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from chalicelib.domain.serving import Served

OPENAI = b"/v1/"


class ClientGone(Exception):
    """The client has closed its connection."""


class Unanswered(Exception):
    """A replica has sent no byte of a response, so the request may be sent to another one."""

    def __init__(self, problem: HttpProblem) -> None:
        self.problem = problem


@dataclass
class HttpProblem(Exception):
    status: int
    message: str
    code: str
    headers: list[tuple[str, str]] = field(default_factory=list)
    param: str | None = None  # the field of the request's body that is wrong

    def body(self, *, openai: bool) -> bytes:
        if openai:
            kind = "invalid_request_error" if self.status < 500 else "server_error"
            error = {"message": self.message, "type": kind, "param": self.param, "code": self.code}
            return json.dumps({"error": error}).encode()
        return json.dumps({"detail": [{"msg": self.message, "code": self.code}]}).encode()


def of_openai(service: Served | None, path: bytes) -> bool:
    """Whether the client of this request expects OpenAI's error format."""
    if path.startswith(OPENAI):
        return True
    return service is not None and service.model is not None and path.startswith(service.model.prefix.encode() + b"/")


def no_host() -> HttpProblem:
    return HttpProblem(400, "The request needs one `Host` header, and has none or several.", "bad_request")


def no_method(method: str) -> HttpProblem:
    return HttpProblem(405, f"{method} isn't passed on to services: use another method.", "method_not_allowed")


def unknown(project: str, run: str) -> HttpProblem:
    text = f"There is no running service {run} in the project {project}. See `dstack ps -a`."
    if not run:
        text = "There is no service under this path: a service's is /proxy/services/<project>/<run>/."
    return HttpProblem(404, text, "resource_not_exists")


def elsewhere(run: str, address: str) -> HttpProblem:
    return HttpProblem(404, f"The service {run} is at {address}: its door is a gateway.", "resource_not_exists")


def no_worker() -> HttpProblem:
    text = "Service workers are for services with a host of their own: one here would stand before the whole server."
    return HttpProblem(403, text, "forbidden")


def no_path() -> HttpProblem:
    """Refuses a target that, appended to a replica's address, would form another address."""
    return HttpProblem(400, "The request's target isn't a path: it must begin with `/`.", "invalid_path")


def climbing() -> HttpProblem:
    text = "The path has a segment `.` or `..`, which servers read differently. Send the path that it leads to."
    return HttpProblem(400, text, "invalid_path")


def not_utf8() -> HttpProblem:
    return HttpProblem(
        400, "A header of the request isn't UTF-8. Encode its value, for instance in Base64.", "bad_header"
    )


def header_too_large(most: int) -> HttpProblem:
    text = f"The request's headers are larger than {most // 1024} KB. Send less in cookies and headers."
    return HttpProblem(431, text, "headers_too_large")


def too_large(most: int) -> HttpProblem:
    size = f"{most / 2**20:g} MB"
    return HttpProblem(413, f"The request's body is larger than the {size} that this service takes.", "body_too_large")


def not_allowed(*, given: bool) -> HttpProblem:
    """The same error whether the service exists or not, so that names can't be found by trying."""
    if not given:
        text = "There is no such service, or it needs a token: send yours as `Authorization: Bearer <token>`."
    else:
        text = (
            "There is no such service, or the token in `Authorization` isn't one of a member of its project, nor a "
            "valid one for this service. Send your own, as it stands in ~/.dstack/config.yml, or one that `dstack "
            "service token` prints, or ask for being made a member."
        )
    return HttpProblem(403, text, "not_authenticated" if not given else "forbidden")


def not_routed() -> HttpProblem:
    text = "This path isn't reached through the service's router: it has /v1/…, /generate, /chat/completions, /health."
    return HttpProblem(403, text, "forbidden")


def too_many(seconds: int) -> HttpProblem:
    text = f"Too many requests: this service limits them. Try again in {seconds} s."
    headers = [("retry-after", str(seconds)), ("x-ratelimit-remaining", "0")]
    return HttpProblem(429, text, "rate_limit_exceeded", headers)


def no_replica(why: str) -> HttpProblem:
    text = f"No replica of this service is ready: {why}. Try again in a moment; `dstack ps -v` shows what it waits for."
    return HttpProblem(503, text, "no_replica", [("retry-after", "5")])


def off() -> HttpProblem:
    text = "This service has no replicas, as configured. Its owner can apply it with another `replicas`."
    return HttpProblem(503, text, "no_replica")


def busy() -> HttpProblem:
    return HttpProblem(
        503, "The server is passing on as many requests as it can. Try again.", "busy", [("retry-after", "2")]
    )


def stopping() -> HttpProblem:
    return HttpProblem(503, "The server is stopping. Try again in a moment.", "stopping", [("retry-after", "5")])


def unreachable() -> HttpProblem:
    text = "The service's replica can't be reached. It may have just ended: see `dstack ps` and `dstack logs`."
    return HttpProblem(502, text, "bad_gateway")


def unanswered() -> HttpProblem:
    text = "The service's replica ended the connection instead of answering. See `dstack logs`."
    return HttpProblem(502, text, "bad_gateway")


def no_answer() -> HttpProblem:
    text = "The service's replica didn't answer in HTTP, or its headers are too large. See `dstack logs`."
    return HttpProblem(502, text, "bad_gateway")


def too_slow(seconds: float) -> HttpProblem:
    text = f"The service's replica has sent nothing for {seconds:.0f} s. See `dstack logs`."
    return HttpProblem(504, text, "gateway_timeout")
