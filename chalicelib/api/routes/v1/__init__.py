"""The resources under `/api/v1`, a file for each noun, and the table of their routes.

GET reads and changes nothing. POST to a list makes a resource, and its answer is 201 with its `Location`; POST to a
verb does it; DELETE removes. Every write takes `?dry_run=true`, which says what it would do, and an `Idempotency-Key`.
"""

from __future__ import annotations

from chalicelib.api.route import Access
from chalicelib.domain.access_tokens import Verb

_PROJECT = "/api/v1/projects/{project_name}"

ROWS = (
    ("GET", "/api/v1/runs", Access.user, Verb.read, "v1.runs.list_all"),
    ("GET", f"{_PROJECT}/runs", Access.member, Verb.read, "v1.runs.list_project"),
    ("POST", f"{_PROJECT}/runs", Access.member, Verb.run, "v1.runs.submit"),
    ("GET", f"{_PROJECT}/runs/{{run_name}}", Access.member, Verb.read, "v1.runs.get"),
    ("DELETE", f"{_PROJECT}/runs/{{run_name}}", Access.member, Verb.run, "v1.runs.delete"),
    ("POST", f"{_PROJECT}/runs/{{run_name}}/stop", Access.member, Verb.run, "v1.runs.stop"),
    ("GET", f"{_PROJECT}/runs/{{run_name}}/logs", Access.member, Verb.read, "v1.runs.read_logs"),
    ("GET", "/api/v1/volumes", Access.user, Verb.read, "v1.volumes.list_all"),
    ("GET", f"{_PROJECT}/volumes", Access.member, Verb.read, "v1.volumes.list_project"),
    ("POST", f"{_PROJECT}/volumes", Access.member, Verb.fleets, "v1.volumes.create"),
    ("GET", f"{_PROJECT}/volumes/{{volume_name}}", Access.member, Verb.read, "v1.volumes.get"),
    ("DELETE", f"{_PROJECT}/volumes/{{volume_name}}", Access.member, Verb.fleets, "v1.volumes.delete"),
)
