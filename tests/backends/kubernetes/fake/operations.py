"""What the verbs do to what is stored."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from chalicelib.domain.instants import SECOND
from tests.backends.kubernetes.fake import admission, applying, defaults, errors, patches, schema, selectors, validation
from tests.backends.kubernetes.fake.quotas import ENDED
from tests.backends.kubernetes.fake.schema import Object, Reading, Resource, of_kind
from tests.backends.kubernetes.fake.store import Store, copied, date, finished

Query = Mapping[str, str]
JSON, MERGE, STRATEGIC = (f"application/{kind}-patch+json" for kind in ("json", "merge", "strategic-merge"))
APPLY = "application/apply-patch+yaml"
PARTS = ("status",)  # that are updated as the object is


@dataclass(frozen=True)
class Place:
    """What a request is about."""

    of: Resource
    namespace: str = ""
    name: str = ""
    part: str = ""


class Operations:
    def __init__(self, store: Store, admitted: admission.Admission) -> None:
        self._store, self._admission = store, admitted
        self._pages: dict[str, tuple[int, list[Object]]] = {}

    # --- writing -----------------------------------------------------------------------------------------------------

    def create(self, at: Place, body: Any, query: Query, agent: str, warn: Callable[[str], None]) -> Object:
        given = self._read(at, body, query, warn)
        meta = given["metadata"]
        if meta.get("resourceVersion"):
            raise errors.refusal(500, "InternalError", "resourceVersion should not be set on objects to be created")
        if not meta.get("name") and meta.get("generateName"):
            meta["name"] = meta["generateName"] + self._store.letters(5)
        if not meta.get("name"):
            raise errors.invalid(at.of, "", list(validation.problems(at.of, given)))
        given.pop("status", None) if at.of.kind != "Node" else None
        return self._stored(at, given, query, agent, "Update")

    def _stored(self, at: Place, given: Object, query: Query, manager: str, how: str) -> Object:
        """A new object, unless the cluster refuses it."""
        defaults.set_in(given)
        self._admission.before(at.of, given)
        if causes := list(validation.problems(at.of, given)):
            raise errors.invalid(at.of, given["metadata"]["name"], causes)
        self._admission.after(at.of, given)
        if self._store.find(at.of.plural, at.namespace, given["metadata"]["name"]):
            raise errors.already_exists(at.of, given["metadata"]["name"])
        new = self._store.prepared(given)
        if how == "Update":
            applying.note_update(new, {}, new, manager, date(self._store.now()))
        return new if _dry(query) else self._store.add(at.of, new)

    def update(self, at: Place, body: Any, query: Query, agent: str, warn: Callable[[str], None]) -> Object:
        given = self._read(at, body, query, warn)
        if (name := given["metadata"].get("name")) != at.name:
            raise errors.bad_request(f"the name of the object ({name}) does not match the name on the URL ({at.name})")
        return self._replaced(at, self._store.get(at.of, at.namespace, at.name), given, query, agent)

    def _replaced(
        self, at: Place, old: Object, given: Object, query: Query, manager: str, *, applied: bool = False
    ) -> Object:
        if (
            given["metadata"].get("resourceVersion", old["metadata"]["resourceVersion"])
            != old["metadata"]["resourceVersion"]
        ):
            raise errors.conflict(at.of, at.name)
        if given["metadata"].get("uid", old["metadata"]["uid"]) != old["metadata"]["uid"]:
            stated, own = given["metadata"]["uid"], old["metadata"]["uid"]
            why = f"Precondition failed: UID in precondition: {stated}, UID in object meta: {own}"
            raise errors.conflict(at.of, at.name, why)
        new = self._merged(at, old, given)
        if causes := [
            *(validation.problems(at.of, new)),
            *(validation.UPDATES[at.of.kind](old, new) if at.of.kind in validation.UPDATES and not at.part else ()),
        ]:
            raise errors.invalid(at.of, at.name, causes)
        if not applied:
            applying.note_update(new, old, new, manager, date(self._store.now()))
        return new if _dry(query) else self._store.replace(at.of, old, new)

    def _merged(self, at: Place, old: Object, given: Object) -> Object:
        """The old object with what this request may change."""
        if at.part == "status":
            changed: Object = copied({**old, "status": given.get("status", {})})
            return changed
        new: Object = copied(given)
        defaults.set_in(new, new=False)
        if "status" in old:
            new["status"] = old["status"]
        else:
            new.pop("status", None)
        for key in ("deletionTimestamp", "deletionGracePeriodSeconds"):
            new["metadata"].pop(key, None)
            if key in old["metadata"]:
                new["metadata"][key] = old["metadata"][key]
        if at.of.kind == "Namespace":
            new["spec"] = old["spec"]
        for key in ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy") if at.of.kind == "Service" else ():
            if key in old["spec"]:
                new["spec"].setdefault(key, old["spec"][key])
        return new

    def patch(
        self, at: Place, kind: str, content: bytes, query: Query, agent: str, warn: Callable[[str], None]
    ) -> tuple[Object, bool]:
        """The object, and whether it's new."""
        body = yaml.safe_load(content)
        old = self._store.find(at.of.plural, at.namespace, at.name)
        if kind == APPLY:
            return self._apply(at, old, body, query, warn)
        if old is None:
            raise errors.not_found(at.of, at.name)
        if kind == JSON:
            changed = patches.json_patch(old, body)
        elif kind == MERGE:
            changed = patches.merge_patch(old, body)
        elif kind == STRATEGIC:
            changed = patches.strategic_patch({"$ref": "/" + at.of.schema}, old, body)
        else:
            raise errors.refusal(
                415, "UnsupportedMediaType", f"the body of the request was in an unknown format: {kind}"
            )
        given = self._read(at, changed, query, warn)
        return self._replaced(at, old, given, query, agent), False

    def _apply(
        self, at: Place, old: Object | None, body: Any, query: Query, warn: Callable[[str], None]
    ) -> tuple[Object, bool]:
        manager = query.get("fieldManager", "")
        if not manager:
            why = "is required for apply patch"
            raise errors.invalid(
                Resource("meta.k8s.io", "", "", "PatchOptions", "", False), "", [errors.required("fieldManager", why)]
            )
        if at.part:
            raise errors.not_implemented("server-side apply to a part of an object")
        config = self._read(at, body, query, warn, defaulting=False)
        if config["metadata"].get("managedFields"):
            raise errors.bad_request("metadata.managedFields must be nil")
        now = date(self._store.now())
        if old is None:
            config["metadata"].setdefault("name", at.name)
            new = applying.applied(at.of, {}, config, manager, now, force=True)
            return self._stored(at, new, query, manager, "Apply"), True
        new = applying.applied(at.of, old, config, manager, now, force=query.get("force") == "true")
        return self._replaced(at, old, new, query, manager, applied=True), False

    def _read(
        self, at: Place, body: Any, query: Query, warn: Callable[[str], None], *, defaulting: bool = True
    ) -> Object:
        of, reading = at.of, Reading()
        if not isinstance(body, dict):
            raise errors.bad_request("the object provided is unrecognized (must be of type Object)")
        if (body.get("kind", of.kind), body.get("apiVersion", of.api_version)) != (of.kind, of.api_version):
            stated = f"{body.get('apiVersion')}, Kind={body.get('kind')}"
            expected = f"{of.api_version}, Kind={of.kind}"
            message = f"the API version in the data ({stated}) does not match the expected API version ({expected})"
            raise errors.bad_request(message)
        cannot = f'{of.kind} in version "{of.version}" cannot be handled as a {of.kind}'
        try:
            given = schema.decoded(of.schema, body, reading)
        except schema.Undecodable as problem:
            raise errors.bad_request(f"{cannot}: json: {problem}") from problem
        unknown = [f'unknown field "{each}"' for each in reading.unknown]
        if unknown and query.get("fieldValidation") == "Strict":
            raise errors.bad_request(f"{cannot}: strict decoding error: {', '.join(unknown)}")
        for each in unknown if query.get("fieldValidation") != "Ignore" else ():
            warn(each)
        meta = given.setdefault("metadata", {})
        name = meta.get("name", at.name)
        if of.namespaced and meta.setdefault("namespace", at.namespace) != at.namespace:
            message = "the namespace of the provided object does not match the namespace sent on the request"
            raise errors.bad_request(f"{message} ({at.namespace})")
        causes = [errors.required(each) for each in reading.missing if defaulting and not each.startswith("status")]
        for path, value, allowed in reading.unsupported:
            listed = ", ".join(f'"{each}"' for each in allowed)
            causes.append(
                errors.Cause(
                    path, f'Unsupported value: "{value}": supported values: {listed}', "FieldValueNotSupported"
                )
            )
        if causes:
            raise errors.invalid(of, name, causes)
        return {"apiVersion": of.api_version, "kind": of.kind, **given}

    # --- deleting ----------------------------------------------------------------------------------------------------

    def delete(self, at: Place, options: Mapping[str, Any], query: Query) -> Object:
        old = self._store.get(at.of, at.namespace, at.name)
        wanted = {
            **options,
            **({"gracePeriodSeconds": int(query["gracePeriodSeconds"])} if "gracePeriodSeconds" in query else {}),
        }
        policy = wanted.get("propagationPolicy", query.get("propagationPolicy", "Background"))
        if policy != "Background":
            raise errors.not_implemented(f"deletion with the policy {policy}")
        for key, shown, found in (
            ("uid", "UID", old["metadata"]["uid"]),
            ("resourceVersion", "ResourceVersion", old["metadata"]["resourceVersion"]),
        ):
            stated = wanted.get("preconditions", {}).get(key, found)
            if stated != found:
                why = f"Precondition failed: {shown} in precondition: {stated}, {shown} in object meta: {found}"
                raise errors.conflict(at.of, at.name, why)
        if _dry({**query, **({"dryRun": "All"} if wanted.get("dryRun") else {})}):
            return old
        new = ended(self._store, old, wanted.get("gracePeriodSeconds"))
        if new is not None or at.of.kind == "Pod":
            return new or old
        details = {
            "name": at.name,
            **({"group": at.of.group} if at.of.group else {}),
            "kind": at.of.plural,
            "uid": old["metadata"]["uid"],
        }
        return errors.status(200, "", "", details, failed=False)

    def delete_collection(self, at: Place, options: Mapping[str, Any], query: Query) -> Object:
        found = self.selected(at, query)
        for each in found:
            meta = each["metadata"]
            self.delete(Place(at.of, meta.get("namespace", ""), meta["name"]), options, query)
        return self._listed(at, found, {})

    # --- listing -----------------------------------------------------------------------------------------------------

    def selected(self, at: Place, query: Query) -> list[Object]:
        matches = selection(at, query)
        return [each for each in self._store.all(at.of.plural, at.namespace) if matches(each)]

    def list(self, at: Place, query: Query) -> Object:
        if query.get("resourceVersionMatch") == "Exact":
            raise errors.not_implemented("lists of exact versions")
        if (least := int(query.get("resourceVersion") or 0)) > self._store.version:
            message = f"Too large resource version: {least}, current: {self._store.version}"
            raise errors.refusal(504, "Timeout", message, {"retryAfterSeconds": 1})
        limit = int(query.get("limit") or 0)
        if token := query.get("continue"):
            version, found = self._pages.get(token, (-1, []))
            if version < self._store.oldest:
                raise errors.expired(
                    "The provided continue parameter is too old to display a consistent list result. "
                    "You can start a new list without the continue parameter."
                )
        else:
            version, found = self._store.version, self.selected(at, query)
        page, rest = (found[:limit], found[limit:]) if limit else (found, [])
        meta: Object = {"resourceVersion": str(version)}
        if rest:
            meta["continue"] = f"{version}-{self._store.letters(12)}"
            self._pages[meta["continue"]] = (version, rest)
            if not (query.get("labelSelector") or query.get("fieldSelector")):
                meta["remainingItemCount"] = len(rest)
        return self._listed(at, page, meta)

    def _listed(self, at: Place, found: Sequence[Object], meta: Object) -> Object:
        items = [{key: value for key, value in each.items() if key not in ("kind", "apiVersion")} for each in found]
        meta = {"resourceVersion": str(self._store.version), **meta}
        return {"kind": f"{at.of.kind}List", "apiVersion": at.of.api_version, "metadata": meta, "items": items}


def _dry(query: Query) -> bool:
    return query.get("dryRun") == "All"


def selection(at: Place, query: Query) -> Callable[[Object], bool]:
    labels = selectors.of_labels(query.get("labelSelector", ""))
    fields = selectors.of_fields(at.of.plural, query.get("fieldSelector", ""))
    return lambda given: labels(given) and fields(given)


def ended(store: Store, old: Object, grace: int | None = None) -> Object | None:
    """Deletes an object as its kind and its finalizers allow: what is left of it, None if nothing is. A pod that runs
    is given time, which another deletion may only shorten."""
    meta, of = old["metadata"], of_kind(old["kind"])
    seconds = 0
    if of.kind == "Pod" and old["spec"].get("nodeName") and old["status"]["phase"] not in ENDED:
        seconds = old["spec"]["terminationGracePeriodSeconds"] if grace is None else grace
    if "deletionTimestamp" in meta:
        seconds = min(seconds, meta["deletionGracePeriodSeconds"])
        if seconds == meta["deletionGracePeriodSeconds"]:
            return old
    new = copied(old)
    new["metadata"] |= {
        "deletionTimestamp": date(store.now() + seconds * SECOND),
        "deletionGracePeriodSeconds": seconds,
    }
    if of.kind == "Namespace":
        new["status"] = {"phase": "Terminating"}
    if finished(new):
        store.remove(of, old)
        return None
    return store.replace(of, old, new)
