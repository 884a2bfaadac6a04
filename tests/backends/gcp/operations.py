"""Operations: what a call has begun, and what became of it. Errors, filters and lists are here, too."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from chalicelib.domain.instants import SECOND, Micros
from tests.backends.fakes.books import Books, Resource
from tests.backends.fakes.script import Call, Script
from tests.backends.fakes.server import Refusal, answers

PROJECT = "my-project"
HOST = "https://www.googleapis.com/compute/v1"
ROOT = f"{HOST}/projects/{PROJECT}"
Error = Mapping[str, Any]


def refusal(status: int, reason: str, message: str) -> Refusal:
    detail = {"message": message, "domain": "global", "reason": reason}
    return Refusal(status, {"error": {"code": status, "message": message, "errors": [detail]}})


def not_found(path: str) -> Refusal:
    return refusal(404, "notFound", f"The resource 'projects/{PROJECT}/{path}' was not found")


def invalid(field: str, text: str) -> Refusal:
    return refusal(400, "invalid", f"Invalid value for field 'resource.{field}': {text}")


def written(at: Micros) -> str:
    return datetime.fromtimestamp(at / SECOND, UTC).isoformat(timespec="milliseconds")


def url(kind: str, at: str, name: str) -> str:
    return f"{ROOT}/{at}/{kind}/{name}"


class Parts:
    """What the parts of the fake share."""

    now: Callable[[], Micros]
    script: Script
    books: Books
    page: Callable[..., tuple[list[Resource], str]]
    unreachable: set[str]  # zones that a list of all zones can't look into

    def listed(self, call: Call, found: Iterable[Resource], show: Callable[[Resource], Any]) -> dict[str, Any]:
        fits = self._filter(str(call.query.get("filter", "")))
        size = int(call.query.get("maxResults", 500))
        rows = [each for each in found if fits({**each.facts, **show(each)})]
        page, more = self.page(call, rows, size, "pageToken")
        items = [show(each) for each in page]
        return {"items": items, **({"nextPageToken": more} if more else {})}

    def by_scope(
        self, call: Call, found: Iterable[Resource], show: Callable[[Resource], Any], name: str, scopes: Sequence[str]
    ) -> dict[str, Any]:
        """A list of all zones or regions."""
        answer = self.listed(call, [each for each in found if each.facts.get("zone") not in self.unreachable], show)
        items: dict[str, dict[str, Any]] = {}
        for scope in scopes:
            code = "UNREACHABLE" if scope.partition("/")[2] in self.unreachable else "NO_RESULTS_ON_PAGE"
            items[scope] = {"warning": {"code": code, "message": "no results", "data": []}}
        for each in answer["items"]:
            scope = "/".join((each.get("zone") or each["region"]).split("/")[-2:])
            if "warning" in items[scope]:
                items[scope] = {name: []}
            items[scope][name].append(each)
        return {**answer, "items": items}

    def _filter(self, text: str) -> Callable[[Mapping[str, Any]], bool]:
        """The few forms of filters that are used here; another is refused."""
        if not text:
            return lambda _: True
        if found := re.fullmatch(r'(\S+) eq "(.*)"', text):
            pattern = re.compile(found[2])
            return lambda body: bool(pattern.fullmatch(str(_value(body, found[1]))))
        if found := re.fullmatch(r'(\S+) = "?([^"]*)"?', text):
            return lambda body: _value(body, found[1]) == found[2]
        if found := re.fullmatch(r"(\S+):\*", text):
            return lambda body: _value(body, found[1]) is not None
        raise refusal(400, "invalid", f"Invalid value for field 'filter': '{text}'. Invalid list filter expression.")


def _value(body: Mapping[str, Any], path: str) -> Any:
    first, _, rest = path.partition(".")
    found = body.get(first)
    return found.get(rest) if rest and isinstance(found, Mapping) else found


class Operations(Parts):
    requests: dict[str, tuple[str, Resource]]  # by request id: what was sent, and its operation

    def replayed(self, call: Call, sent: object) -> Resource | None:
        """The operation of the call that this one repeats."""
        identity = call.query.get("requestId")
        if identity is None:
            return None
        if not re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", identity) or not identity.strip("0-"):
            raise refusal(400, "invalid", f"Invalid value for field 'requestId': '{identity}'. Must be a UUID.")
        known = self.requests.get(identity)
        if known and known[0] != repr(sent):
            raise refusal(400, "invalid", "Request ID was used for another request.")
        return known[1] if known else None

    def operation(
        self,
        kind: str,
        at: str,
        target: str,
        lasts: float = 5.0,
        *,
        call: Call | None = None,
        sent: object = None,
        error: Sequence[Error] = (),
        status: int = 0,
        user: str = "me@example.com",
    ) -> Resource:
        """`at`: `zones/…`, `regions/…` or `global`; `target`: what it is about, within that. `status`: with which
        HTTP status an error comes; 0: with none."""
        ends = round(lasts * SECOND)
        steps = [(0, "RUNNING"), (ends, "DONE")] if ends else [(0, "DONE")]
        identity = str(call.query.get("requestId", "")) if call else ""
        made = self.books.add(
            "operation",
            *steps,
            type=kind,
            at=at,
            target=f"{ROOT}/{at}/{target}",
            client=identity,
            error=tuple(error),
            status=status,
            user=user,
        )
        if identity:
            self.requests[identity] = repr(sent), made
        return made

    def shown_operation(self, made: Resource) -> dict[str, Any]:
        facts, state = made.facts, made.state(self.now())
        scope, _, place = facts["at"].partition("/")
        ended = made.first("DONE", self.now())
        body: dict[str, Any] = {
            "kind": "compute#operation",
            "id": str(made.number),
            "name": f"operation-{made.number}",
            "operationType": facts["type"],
            "targetLink": facts["target"],
            "targetId": str(facts.get("target_id", 0)),
            "status": state,
            "user": facts["user"],
            "progress": 100 if state == "DONE" else 0,
            "insertTime": written(made.born),
            "startTime": written(made.born),
            "selfLink": f"{ROOT}/{facts['at']}/operations/operation-{made.number}",
        }
        if place:
            body[scope.removesuffix("s")] = f"{ROOT}/{facts['at']}"
        if facts["client"]:
            body["clientOperationId"] = facts["client"]
        if ended is not None:
            body["endTime"] = written(ended)
            if facts["error"]:
                body["error"] = {"errors": [dict(each) for each in facts["error"]]}
            if facts["error"] and facts["status"]:
                body |= {"httpErrorStatusCode": facts["status"], "httpErrorMessage": "SERVICE UNAVAILABLE"}
        return body

    @answers(
        "zoneOperations.get",
        "zoneOperations.wait",
        "regionOperations.get",
        "regionOperations.wait",
        "globalOperations.get",
        "globalOperations.wait",
    )
    def _get_operation(self, call: Call) -> Any:
        """Waiting takes no time here: it is best effort, and may return early."""
        name = call.path["operation"]
        for each in self.books.existing("operation"):
            if f"operation-{each.number}" == name:
                return self.shown_operation(each)
        raise not_found(f"operations/{name}")

    @answers("zoneOperations.list")
    def _list_operations(self, call: Call) -> Any:
        here = [each for each in self.books.existing("operation") if each.facts["at"] == f"zones/{call.path['zone']}"]
        return self.listed(call, here, self.shown_operation)
