"""What a refusal becomes: the errors that the control plane itself raises, with code, place and hint."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from chalicelib.errors import (
    AlreadyExists,
    DstackError,
    Forbidden,
    Invalid,
    NotFound,
    Problem,
    ProjectNotFound,
    Refused,
)
from cli.screen.problems import problems_in
from dstack_serverless.sdk.flow import Reply, Request

if TYPE_CHECKING:
    from chalicelib import contract

NO_SUCH_PATH = (404, 405)
FINISHED = ("terminated", "failed", "done")  # statuses of a run that has ended


class Unanswered(Refused):
    """No server answered, or the connection was lost. `sent`: the request may have been carried out."""

    def __init__(self, message: str, *, hint: str = "", sent: bool) -> None:
        super().__init__(message, hint=hint)
        self.sent = sent


class WaitedTooLong(DstackError):
    """What was waited for didn't happen in time."""


class RunEnded(DstackError):
    """The run ended before it got where it was waited for. `run` is how it ended."""

    def __init__(self, message: str, run: contract.Run) -> None:
        super().__init__(message)
        self.run = run


def error_of(reply: Reply, answer: Any, request: Request[Any], url: str) -> DstackError:
    """The error for a response of 400 or more. `answer` is its JSON, None for anything else."""
    error = _of_problem(answer, reply.status) if _is_problem(answer) else _of_detail(answer, reply.status, request, url)
    error.status = reply.status
    return error


def _is_problem(answer: Any) -> bool:
    """Is it a problem as in RFC 9457?"""
    return isinstance(answer, dict) and "detail" in answer and isinstance(answer.get("title"), str)


def _of_problem(answer: dict[str, Any], status: int) -> DstackError:
    found = answer.get("errors") or ()
    error: DstackError
    if found:
        error = Invalid([_problem(each) for each in found], hint=answer.get("hint") or "")
    else:
        kinds: dict[int, type[DstackError]] = {401: Forbidden, 403: Forbidden, 404: NotFound}
        kind = AlreadyExists if answer.get("code") == "already-exists" else kinds.get(status, Refused)
        error = kind(str(answer["detail"]), hint=answer.get("hint") or "")
    error.code = str(answer.get("code") or "error")
    return error


def _problem(part: dict[str, Any]) -> Problem:
    place = ".".join(str(part.get("pointer") or "").split("/")[1:]) or str(part.get("parameter") or "")
    code = str(part.get("code") or "invalid-value")
    return Problem(
        str(part.get("detail") or ""), place, line=part.get("line") or 0, hint=part.get("hint") or "", code=code
    )


def _of_detail(answer: Any, status: int, request: Request[Any], url: str) -> DstackError:
    detail = answer.get("detail") if isinstance(answer, dict) else None
    entry = detail[0] if isinstance(detail, list) and detail else detail
    entry = entry if isinstance(entry, dict) else {}
    text = str(entry.get("msg") or (detail if isinstance(detail, str) else ""))
    if status in (401, 403):
        return Forbidden(text or f"The server at {url} doesn't let this token do that.")
    if status == 404 and entry:
        return ProjectNotFound(text)
    if status in NO_SUCH_PATH:
        return Refused(
            f"The server at {url} doesn't know {request.path}.", hint="Is the URL right, and the server new enough?"
        )
    if status >= 500 or not text:
        return Refused(f"The server at {url} answered with HTTP {status}{': ' + text if text else ''}.")
    kinds = {"resource_not_exists": NotFound, "resource_exists": AlreadyExists}
    code = str(entry.get("code") or "error")
    found = problems_in(entry)
    error = Invalid(found) if found else kinds.get(code, Refused)(text)
    error.code = code
    return error
