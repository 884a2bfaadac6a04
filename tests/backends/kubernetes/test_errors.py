"""What an API server refuses, in our words."""

from __future__ import annotations

import pytest

from chalicelib.backends.kit.errors import described
from chalicelib.backends.kubernetes.errors import TABLE
from chalicelib.errors import (
    AlreadyThere,
    BackendError,
    Gone,
    InvalidCredentials,
    MissingPermission,
    NotYet,
    QuotaExceeded,
    Throttled,
    Transient,
    Unfit,
)

DENIED = 'pods is forbidden: User "{}" cannot create resource "pods" in API group "" in the namespace "n"'
QUOTA = 'pods "x" is forbidden: exceeded quota: q, requested: cpu=250m, used: cpu=1, limited: cpu=1'


@pytest.mark.parametrize(
    ("status", "reason", "message", "kind"),
    [
        (401, "Unauthorized", "Unauthorized", InvalidCredentials),
        (403, "Forbidden", DENIED.format("u"), MissingPermission),
        (403, "Forbidden", DENIED.format("system:anonymous"), InvalidCredentials),
        (403, "Forbidden", QUOTA, QuotaExceeded),
        (403, "Forbidden", 'pods "x" is forbidden: failed quota: q: must specify cpu,memory', Unfit),
        (403, "Forbidden", 'pods "x" is forbidden: violates PodSecurity "restricted:latest": …', Unfit),
        (403, "Forbidden", 'pods "x" is forbidden: maximum cpu usage per Container is 2, but limit is 4', Unfit),
        (403, "Forbidden", 'pods "x" is forbidden: RuntimeClass "kata" not found', Unfit),
        (403, "Forbidden", 'pods "x" is forbidden: no PriorityClass with name high was found', Unfit),
        (403, "Forbidden", 'unable to create new content in namespace n because it is being terminated', Unfit),
        (403, "Forbidden", 'pods "x" is forbidden: error looking up service account n/t: not found', Unfit),
        (400, "BadRequest", 'admission webhook "policy.example" denied the request: no', Unfit),
        (404, "NotFound", 'pods "x" not found', Gone),
        (409, "AlreadyExists", 'pods "x" already exists', AlreadyThere),
        (409, "Conflict", 'Operation cannot be fulfilled on resourcequotas "q": the object has been modified', NotYet),
        (410, "Expired", "too old resource version", Transient),
        (422, "Invalid", 'Pod "x" is invalid: spec.containers[0].image: Required value', Unfit),
        (429, "TooManyRequests", "the server has received too many requests", Throttled),
        (500, "InternalError", "etcdserver: request timed out", Transient),
        (503, "ServiceUnavailable", "the server is currently unable to handle the request", Transient),
        (504, "Timeout", "request did not complete within the allotted timeout", Transient),
    ],
)  # fmt: skip
def test_each_refusal_is_what_it_means(status: int, reason: str, message: str, kind: type[BackendError]) -> None:
    body = {"kind": "Status", "status": "Failure", "code": status, "reason": reason, "message": message}
    found = TABLE.error(described(body, status), "POST /api/v1/namespaces/n/pods", "east")
    assert (type(found) is kind and "east" in str(found)) or kind is InvalidCredentials
    assert found.provider_code == reason
