"""What the API server says when it refuses: a `Status` with the reason that clients decide by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tests.backends.fakes.server import Refusal
from tests.backends.kubernetes.fake.schema import Resource


class Cause(NamedTuple):
    """One field that is wrong."""

    field: str
    message: str
    reason: str = "FieldValueInvalid"


def required(field: str, why: str = "") -> Cause:
    return Cause(field, "Required value" + (f": {why}" if why else ""), "FieldValueRequired")


def forbidden_field(field: str, why: str) -> Cause:
    return Cause(field, f"Forbidden: {why}", "FieldValueForbidden")


def wrong_value(field: str, value: Any, why: str) -> Cause:
    shown = f'"{value}"' if isinstance(value, str) else str(value)
    return Cause(field, f"Invalid value: {shown}: {why}")


def status(
    code: int, reason: str, message: str, details: Mapping[str, Any] | None = None, *, failed: bool = True
) -> dict[str, Any]:
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure" if failed else "Success",
        **({"message": message} if message else {}),
        **({"reason": reason} if reason else {}),
        **({"details": dict(details)} if details else {}),
        "code": code,
    }


def refusal(code: int, reason: str, message: str, details: Mapping[str, Any] | None = None) -> Refusal:
    headers = {"retry-after": str(details["retryAfterSeconds"])} if details and "retryAfterSeconds" in details else {}
    return Refusal(code, status(code, reason, message, details), headers)


def _details(of: Resource, name: str) -> dict[str, Any]:
    return {"name": name, **({"group": of.group} if of.group else {}), "kind": of.plural}


def not_found(of: Resource, name: str) -> Refusal:
    return refusal(404, "NotFound", f'{of.qualified} "{name}" not found', _details(of, name))


def no_route() -> Refusal:
    return refusal(404, "NotFound", "the server could not find the requested resource", {"causes": []})


def already_exists(of: Resource, name: str) -> Refusal:
    return refusal(409, "AlreadyExists", f'{of.qualified} "{name}" already exists', _details(of, name))


MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"


def conflict(of: Resource, name: str, why: str = MODIFIED) -> Refusal:
    message = f'Operation cannot be fulfilled on {of.qualified} "{name}": {why}'
    return refusal(409, "Conflict", message, _details(of, name))


def forbidden(of: Resource, name: str, why: str) -> Refusal:
    return refusal(403, "Forbidden", f'{of.qualified} "{name}" is forbidden: {why}', _details(of, name))


def invalid(of: Resource, name: str, causes: Sequence[Cause]) -> Refusal:
    lines = [f"{each.field}: {each.message}" for each in causes]
    text = lines[0] if len(lines) == 1 else f"[{', '.join(lines)}]"
    kind = f"{of.kind}.{of.group}" if of.group else of.kind
    details = {
        "name": name,
        **({"group": of.group} if of.group else {}),
        "kind": of.kind,
        "causes": [{"reason": each.reason, "message": each.message, "field": each.field} for each in causes],
    }
    return refusal(422, "Invalid", f'{kind} "{name}" is invalid: {text}', details)


def bad_request(message: str) -> Refusal:
    return refusal(400, "BadRequest", message)


def expired(message: str) -> Refusal:
    return refusal(410, "Expired", message)


def not_implemented(what: str) -> Refusal:
    """A real server has it, and this one doesn't."""
    return refusal(501, "NotImplemented", f"this fake of an API server doesn't have {what}")
