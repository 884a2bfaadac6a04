"""The error vocabulary. Everything raises from here.

An error for people has a sentence that says what is wrong and, in `hint`, the smallest change that would help. `code`
is the wire code (a closed list that clients know), `status` the HTTP status. Clients show only the text of a 400, so
anything people should read is sent as 400, never as 409 or 503.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_BREAKING = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")


@dataclass(frozen=True)
class Problem:
    """One problem of an input: where it is, what was found, and how to fix it."""

    message: str
    path: str = ""  # dotted field path: resources.gpu.count
    file: str = ""
    line: int = 0  # 1-based; 0 when unknown
    column: int = 0
    hint: str = ""  # "did you mean `nodes`?", or a valid example
    code: str = "invalid-value"  # stable slug, an entry in the error catalog

    @property
    def text(self) -> str:
        """The message without the place: one line, the same from the API, from every client and for a file."""
        field = f"{self.path}: " if self.path else ""
        hint = f" ({self.hint})" if self.hint else ""
        return _BREAKING.sub(lambda found: repr(found[0])[1:-1], f"{field}{self.message}{hint}")

    def render(self) -> str:
        place = ":".join(str(part) for part in (self.file, self.line, self.column) if part)
        return f"{place}: {self.text}" if place else self.text


class DstackError(Exception):
    """The root. `str(error)` is for people."""

    code = "error"
    status = 400

    def __init__(self, message: str, *, hint: str = "", fields: tuple[str, ...] = ()) -> None:
        super().__init__(f"{message} {hint}".strip() if hint else message)
        self.message, self.hint, self.fields = message, hint, fields


class Invalid(DstackError):
    """Input that can't be accepted; `problems` has all of them, not only the first.

    The message has a line for each, and `fields` an entry per line, so that clients can show where each belongs.
    """

    def __init__(self, problems: list[Problem] | tuple[Problem, ...] | str, *, hint: str = "") -> None:
        found = (Problem(problems),) if isinstance(problems, str) else tuple(problems)
        super().__init__("\n".join(p.render() for p in found), hint=hint, fields=tuple(p.path for p in found))
        self.problems = found


class WrongFlag(Invalid):
    """The same for a command line instead of a file."""


class WrongQuery(Invalid):
    """The same for the query of a request."""


class Refused(DstackError):
    """The request is well formed but can't be done now, or by this control plane; the message says why."""


class Contended(Refused):
    """Others kept changing the same thing. The same request may succeed a moment later."""


class KeyReused(Refused):
    """An `Idempotency-Key` came before, with another request."""


class PreconditionFailed(Refused):
    """The resource isn't as the request says it should be."""


class Overloaded(Refused):
    """There are too many requests at once. The same request may succeed a moment later."""


class TooLarge(Refused):
    """The request has more bytes than the control plane reads."""


class NotSupported(Refused):
    """A feature that isn't built: refused by name, never accepted and ignored."""


class WrongScim(Refused):
    """A request of a directory that can't be read. `kind`: what SCIM calls that (`scimType`)."""

    def __init__(self, message: str, kind: str, *, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.kind = kind


class NoBackend(Refused):
    """The project has no such backend."""

    code = "backend_not_available"


class NotFound(DstackError):
    code = "resource_not_exists"


class NoSuchFile(DstackError):
    """A file that a browser asks for."""

    code = "resource_not_exists"
    status = 404


class AlreadyExists(DstackError):
    code = "resource_exists"


class ProjectNotFound(DstackError):
    status = 404


class Forbidden(DstackError):
    """An insufficient role, or a user who may not call. Clients print their own text for 403."""

    status = 403


class Unauthenticated(Forbidden):
    """A missing, unknown or revoked token: nobody knows who calls."""


class Ended(DstackError):
    """The resource existed, and is gone for good."""

    status = 410


class StorageFull(DstackError):
    """The disk or table can't take the write. Nothing was changed."""


class DataTooNew(DstackError):
    """The data was written by a newer version of the program."""


class OnlyLooks(DstackError):
    """A restored control plane that ends nothing until an operator lets it go on."""


class NotDeployed(DstackError):
    """This control plane in AWS lacks parts that a deployment creates."""

    status = 503


class Moved(DstackError):
    """Nothing is decided here: another control plane has these records now, or will have them."""


class Fenced(Moved):
    """This server doesn't decide: the other one of its pair may."""

    status = 503


# --- the store -------------------------------------------------------------------------------------------------------


class Conflict(DstackError):
    """A condition of a commit failed: another writer changed `key` first. Nothing was written; read again and retry."""

    def __init__(self, key: str) -> None:
        super().__init__(f"{key} was changed by another request meanwhile.", hint="Try again.")
        self.key = key


# --- the engine ------------------------------------------------------------------------------------------------------


class Bug(DstackError):
    """A state that must not exist: an impossible transition, a plan that fails its lint. Never the user's fault."""

    status = 500


# --- backends: what a provider's failure means; the engine maps each to an action in one table ------------------------


class BackendError(DstackError):
    """The root of the errors that a provider can return."""

    provider_code = ""  # the provider's own; empty if it gave none


class InsufficientCapacity(BackendError):
    """No such machine is available now. Try the next offer."""


class QuotaExceeded(BackendError):
    """The account's quota is exhausted. Try the next offer; the message names the quota."""


class InvalidCredentials(BackendError):
    """The provider refused the credentials. No offer of this backend can work."""

    code = "invalid_credentials"


class MissingPermission(BackendError):
    """The credentials lack a permission. The message names it."""


class Throttled(BackendError):
    """Too many requests; wait `retry_after` seconds."""

    def __init__(self, message: str, *, retry_after: float = 5.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after if 0 <= retry_after <= 3_600 else 3_600.0 if retry_after > 0 else 5.0


class Gone(BackendError):
    """The resource of a handle doesn't exist (any more). The only proof that a termination is complete.

    `refused`: it was never created, because the provider noticed this error only after it had accepted the call."""

    def __init__(self, message: str, *, refused: type[BackendError] | None = None) -> None:
        super().__init__(message)
        self.refused = refused


class AlreadyThere(BackendError):
    """A name or token is taken by something that isn't ours."""


class InUse(BackendError):
    """Machines use it, so it can't be attached to another one, or deleted."""


class Transient(BackendError):
    """Unknown outcome: a time-out, a 5xx, a reset. Look for the name, then repeat."""


class NotYet(BackendError):
    """The condition that the call waits for isn't met yet. Nothing is wrong; try again."""


class ContainerFailed(BackendError):
    """A container didn't start, and no other offer would change that: its image can't be pulled or run, its registry
    refuses the login, or its command isn't there. The message says which."""


class Unfit(BackendError):
    """A host can't be used as it is. The message names everything that is missing, and how to fix it."""
