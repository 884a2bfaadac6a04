"""Requests and their answers: who asks, what for, may they, and what comes of it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, unquote, urlsplit

import yaml

from tests.backends.fakes.schema import Operation
from tests.backends.fakes.script import Answer, Call, Cut
from tests.backends.fakes.server import Refusal, Request
from tests.backends.kubernetes.fake import discovery, errors, forwarding, protobuf, schema, streams, watching
from tests.backends.kubernetes.fake.operations import Operations, Place, ended
from tests.backends.kubernetes.fake.rbac import Access
from tests.backends.kubernetes.fake.schema import resources

if TYPE_CHECKING:
    from tests.backends.kubernetes.fake.cluster import Cluster

_WRITES = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_CONNECT = ("exec", "attach", "portforward")


@dataclass
class Lines:
    """An answer that comes in pieces until its end."""

    pieces: Iterator[bytes]
    kind: str = "application/json"


@dataclass
class Reply:
    answer: Answer | Lines | streams.Upgrade
    warnings: list[str] = field(default_factory=list)


class Api:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.operations = Operations(cluster.store, cluster.admission)

    def reply(self, request: Request, gone: Callable[[], bool]) -> Reply:
        """`gone`: has the client left? Raises Cut if there is no answer."""
        cluster, warnings = self._cluster, list[str]()
        try:
            user = self._user(request)
            url = urlsplit(request.target)
            path, query = unquote(url.path), dict(parse_qsl(url.query, keep_blank_values=True))
            if (found := discovery.answer(path)) is not None and request.method == "GET":
                return Reply(Answer(200, found))
            at = _place(path)
            verb = _verb(request.method, at, query)
            resource = at.of.plural + (f"/{at.part}" if at.part else "")
            misplaced = not at.part and bool(at.name) is (verb in ("create", "list", "watch", "deletecollection"))
            if misplaced or verb not in (at.of.parts.get(at.part, ()) if at.part else at.of.verbs):
                raise errors.refusal(
                    405, "MethodNotAllowed", "the server does not allow this method on the requested resource"
                )
            if at.of.plural != "selfsubjectaccessreviews":
                self._authorize(user, verb, at, resource, request)
            operation = Operation(f"{verb} {resource}", request.method, path)
            call = Call(
                operation,
                {"namespace": at.namespace, "name": at.name},
                query,
                request.headers,
                request.body,
                cluster.now(),
            )
            cluster.calls.append(call)
            cluster.faults.delay(operation.name)
            self._fail(call, "before")
            with cluster.store.changed:
                cluster.settle()
                done = self._act(user, verb, at, query, request, call, warnings.append, gone)
                cluster.settle()
            self._fail(call, "after")
            return Reply(done, warnings)
        except Refusal as refused:
            return Reply(refused.answer, warnings)

    def _user(self, request: Request) -> str:
        kind, _, token = request.headers.get("authorization", "").partition(" ")
        user = self._cluster.users.tokens.get(token) if kind.lower() == "bearer" else None
        if user is None:
            raise errors.refusal(401, "Unauthorized", "Unauthorized")
        return user

    def _authorize(self, user: str, verb: str, at: Place, resource: str, request: Request) -> None:
        verbs = {verb}
        if at.part in _CONNECT:  # a WebSocket is asked for with GET, and needs `create` all the same
            verbs.add("create")
        for each in sorted(verbs):
            self._cluster.users.authorize(user, Access(each, at.of.group, resource, at.namespace, at.name))

    def _fail(self, call: Call, when: str) -> None:
        fault = self._cluster.faults.script.fault(call, when)
        if fault is None:
            return
        if isinstance(fault.becomes, Answer):
            raise Refusal(fault.becomes.status, fault.becomes.body, fault.becomes.headers)
        assert fault.becomes is Cut, "a cluster doesn't lie"
        raise Cut

    def _act(
        self,
        user: str,
        verb: str,
        at: Place,
        query: dict[str, str],
        request: Request,
        call: Call,
        warn: Callable[[str], None],
        gone: Callable[[], bool],
    ) -> Answer | Lines | streams.Upgrade:
        do, agent = self.operations, query.get("fieldManager") or _agent(request)
        if at.part in (*_CONNECT, "log"):
            return self._stream(at, request, gone)
        if verb == "watch":
            found = watching.lines(self._cluster, at, query, gone)
            self._cluster.store.changed.notify_all()
            return Lines(found)
        if verb == "list":
            return Answer(200, do.list(at, query))
        if verb == "get":
            return Answer(200, self._cluster.store.get(at.of, at.namespace, at.name))
        if verb == "patch":
            kind = request.headers.get("content-type", "").partition(";")[0]
            given, new = do.patch(at, kind, request.body, query, agent, warn)
            return Answer(201 if new else 200, given)
        body = _body(request)
        if at.of.plural == "selfsubjectaccessreviews":
            return Answer(201, self._review(user, body))
        if at.part in ("binding", "eviction"):
            return Answer(201, self._special(at, body))
        if verb == "create":
            return Answer(201, do.create(at, body, query, agent, warn))
        if verb == "update":
            return Answer(200, do.update(at, body, query, agent, warn))
        remove = do.delete if verb == "delete" else do.delete_collection
        return Answer(200, remove(at, body or {}, query))

    def _stream(self, at: Place, request: Request, gone: Callable[[], bool]) -> Answer | Lines | streams.Upgrade:
        query = parse_qsl(urlsplit(request.target).query, keep_blank_values=True)
        pod = self._cluster.store.get(at.of, at.namespace, at.name)
        if at.part == "log":
            follows, found = streams.log(self._cluster, pod, dict(query), gone)
            return Lines(found, "text/plain") if follows else Answer(200, b"".join(found))
        if at.part == "attach":
            raise errors.not_implemented("attach")
        opens = streams.execute if at.part == "exec" else forwarding.forward
        return opens(self._cluster, pod, query, request.headers)

    def _special(self, at: Place, body: Any) -> Any:
        store = self._cluster.store
        pod = store.get(at.of, at.namespace, at.name)
        if at.part == "binding":
            if pod["spec"].get("nodeName"):
                why = f'pod {at.name} is already assigned to node "{pod["spec"]["nodeName"]}"'
                raise errors.conflict(at.of, at.name, why)
            self._cluster.scheduler.bind(pod, body["target"]["name"])
        else:
            self._cluster.disrupt(pod, "EvictionByEvictionAPI", "Eviction API: evicting")
            ended(
                store,
                store.get(at.of, at.namespace, at.name),
                (body.get("deleteOptions") or {}).get("gracePeriodSeconds"),
            )
        return errors.status(201, "", "", failed=False)

    def _review(self, user: str, body: Any) -> Any:
        reading = schema.Reading()
        try:
            given = schema.decoded("authorization.v1.SelfSubjectAccessReview", body, reading)
        except schema.Undecodable as problem:
            raise errors.bad_request(str(problem)) from problem
        attributes = given.get("spec", {}).get("resourceAttributes")
        if attributes is None:
            raise errors.not_implemented("reviews of what isn't a resource")
        resource = attributes.get("resource", "") + (
            f"/{attributes['subresource']}" if attributes.get("subresource") else ""
        )
        access = Access(
            attributes.get("verb", ""),
            attributes.get("group", ""),
            resource,
            attributes.get("namespace", ""),
            attributes.get("name", ""),
        )
        status = {"allowed": self._cluster.users.allows(user, access)}
        return {**given, "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "status": status}


_PATH = re.compile(
    r"/api(?:s/([^/]+))?/([^/]+)((?:/namespaces/([^/]+)(?=/[^/]))?/(?!watch/)([^/]+)(?:/([^/]+)(?:/([^/]+))?)?)"
)


def _place(path: str) -> Place:
    match = _PATH.fullmatch(path)
    if match is None:
        raise errors.no_route()
    group, version, _, namespace, plural, name, part = match.groups()
    # /namespaces/a/status and /namespaces/a are about the namespace itself.
    if namespace and plural in ("status", "finalize"):
        plural, name, part, namespace = "namespaces", namespace, plural, ""
    of = resources().get(plural)
    if of is None or (of.group, of.version) != (group or "", version) or (namespace and not of.namespaced):
        raise errors.no_route()
    if part and part not in of.parts:
        raise errors.no_route()
    return Place(of, namespace or "", name or "", part or "")


def _verb(method: str, at: Place, query: dict[str, str]) -> str:
    if method == "DELETE" and not at.name:
        return "deletecollection"
    if method == "GET":
        watched = query.get("watch") in ("1", "true", "True")
        return "get" if at.name else "watch" if watched else "list"
    return _WRITES.get(method, method)


def _agent(request: Request) -> str:
    return request.headers.get("user-agent", "unknown").partition("/")[0]


def _body(request: Request) -> Any:
    kind = request.headers.get("content-type", "application/json").partition(";")[0]
    if kind == protobuf.CONTENT_TYPE:
        try:
            return protobuf.decoded(request.body)
        except protobuf.Unreadable as problem:
            raise errors.refusal(415, "UnsupportedMediaType", f"this fake reads of protobuf {problem}") from problem
    if kind not in ("application/json", "application/yaml", "*/*", ""):
        raise errors.refusal(415, "UnsupportedMediaType", f"the body of the request was in an unknown format: {kind}")
    if not request.body:
        return None
    try:
        return yaml.safe_load(request.body) if kind == "application/yaml" else streams.loads(request.body)
    except (ValueError, yaml.YAMLError) as problem:
        raise errors.bad_request(f"the object provided is unrecognized: {problem}") from problem
