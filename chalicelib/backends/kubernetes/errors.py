"""Translates what an API server refuses into our errors. The text names the call that failed.

The server says `reason` in its answer, which is more precise than the status: a 409 is a name that is taken, or a
change that somebody else made first. A 403 is a missing permission, a quota, or an admission controller that objects to
the pod; only the text says which. A 404 without the server's reason is that of something in between, such as a proxy,
and proves nothing.
"""

from __future__ import annotations

from chalicelib.backends.kit.errors import STATUSES, ErrorTable
from chalicelib.errors import (
    AlreadyThere,
    Gone,
    InvalidCredentials,
    NotYet,
    QuotaExceeded,
    Throttled,
    Transient,
    Unfit,
)

TABLE = ErrorTable(
    "Kubernetes",
    (
        (InvalidCredentials, "Unauthorized"),
        (AlreadyThere, "AlreadyExists"),
        (NotYet, "Conflict"),  # also of a quota that two pods changed at once
        (Gone, "NotFound"),
        (Throttled, "TooManyRequests"),
        (Unfit, "Invalid BadRequest MethodNotAllowed NotAcceptable UnsupportedMediaType RequestEntityTooLarge"),
        (Transient, "Expired Gone InternalError ServerTimeout ServiceUnavailable StorageReadError Timeout"),
    ),
    (
        (QuotaExceeded, r"exceeded quota"),
        (Unfit, r"failed quota"),
        (Unfit, r"violates PodSecurity"),
        (Unfit, r"admission webhook .* denied"),
        (Unfit, r"(maximum|minimum) \S+ (usage|limit)|limit to request ratio"),
        (Unfit, r"RuntimeClass .* not found|no PriorityClass with name|error looking up service account"),
        (Unfit, r"because it is being terminated"),
        (InvalidCredentials, r"system:anonymous"),
    ),
    {status: kind for status, kind in STATUSES.items() if kind is not Gone},
)
