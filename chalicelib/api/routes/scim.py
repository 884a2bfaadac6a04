"""SCIM 2.0: a company's directory makes, changes and deactivates users, and says who is in which group."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from chalicelib.api.encode import encode
from chalicelib.api.route import Answer, Call
from chalicelib.api.scim import LONGEST_PAGE, MEDIA, filters, patch, resources
from chalicelib.api.wire import scim as wire
from chalicelib.domain.directory import DirectoryGroup
from chalicelib.errors import NotFound
from chalicelib.usecases.people import directory, directory_groups
from chalicelib.usecases.people.directory import Seen

if TYPE_CHECKING:
    from chalicelib.contract import scim

T = TypeVar("T")
Texts = Mapping[str, Callable[[T], Sequence[str]]]

_EMAILS: Callable[[Seen], Sequence[str]] = lambda seen: [seen.user.email or ""]  # noqa: E731
_MEMBERS: Callable[[DirectoryGroup], Sequence[str]] = lambda group: group.members  # noqa: E731
# What can be filtered by, and the texts of it that a resource has.
USERS: Texts[Seen] = {
    "userName": lambda seen: list(seen.called),
    "externalId": lambda seen: [seen.person.external_id],
    "id": lambda seen: [seen.user.id],
    "displayName": lambda seen: [seen.person.display_name],
    "active": lambda seen: [str(seen.user.active)],
    **dict.fromkeys(("emails", "emails.value", 'emails[type eq "work"].value'), _EMAILS),
}
GROUPS: Texts[DirectoryGroup] = {
    "displayName": lambda group: [group.name],
    "externalId": lambda group: [group.external_id],
    "id": lambda group: [group.id],
    **dict.fromkeys(("members", "members.value"), _MEMBERS),
}


# --- what there is ----------------------------------------------------------------------------------------------------


def config(call: Call) -> Annotated[Answer, MEDIA]:
    return _answer(call, wire.config_json(_base(call)))


def types(call: Call) -> Annotated[Answer, MEDIA]:
    found = wire.types_json(_base(call))
    return _answer(call, wire.listed(found, len(found)))


def type_(call: Call) -> Annotated[Answer, MEDIA]:
    return _answer(call, _one(wire.types_json(_base(call)), call.params["id"]))


def schemas(call: Call) -> Annotated[Answer, MEDIA]:
    found = wire.schemas_json(_base(call))
    return _answer(call, wire.listed(found, len(found)))


def schema(call: Call) -> Annotated[Answer, MEDIA]:
    return _answer(call, _one(wire.schemas_json(_base(call)), call.params["id"]))


def _one(found: list[dict[str, Any]], id: str) -> dict[str, Any]:
    for each in found:
        if each["id"] == id:
            return each
    raise NotFound(f"There is no {id[:80]!r} here.", hint=f"There is {' and '.join(each['id'] for each in found)}.")


# --- users ------------------------------------------------------------------------------------------------------------


def list_users(call: Call) -> Annotated[Answer, MEDIA]:
    return _page(call, directory.people(call.plane), USERS, lambda seen: _user(call, seen))


def get_user(call: Call) -> Annotated[Answer, MEDIA]:
    return _shown(call, _user(call, directory.person(call.plane.store, call.params["id"])))


def create_user(call: Call) -> Annotated[Answer, MEDIA, 201]:
    seen = directory.add(call.plane, call.actor, resources.person_of(resources.read(call.body)))
    return _made(call, _user(call, seen))


def replace_user(call: Call) -> Annotated[Answer, MEDIA]:
    seen = directory.person(call.plane.store, call.params["id"])
    wanted = resources.person_of(resources.read(call.body), active=seen.user.active)
    return _shown(call, _user(call, directory.change(call.plane, call.actor, seen.user.id, wanted)))


def patch_user(call: Call) -> Annotated[Answer, MEDIA]:
    seen = directory.person(call.plane.store, call.params["id"])
    wanted = resources.person_of(_patched(call, _user(call, seen)), active=seen.user.active)
    return _shown(call, _user(call, directory.change(call.plane, call.actor, seen.user.id, wanted)))


def delete_user(call: Call) -> Annotated[Answer, 204]:
    """Deletes the user with all memberships."""
    directory.remove(call.plane, call.actor, call.params["id"])
    directory_groups.forget(call.plane, call.params["id"])
    return Answer(b"", status=204)


def _user(call: Call, seen: Seen) -> scim.ScimUser:
    return wire.user_json(seen.user, seen.person, _base(call))


# --- groups -----------------------------------------------------------------------------------------------------------


def list_groups(call: Call) -> Annotated[Answer, MEDIA]:
    return _page(call, directory_groups.groups(call.plane.store), GROUPS, lambda group: _group(call, group))


def get_group(call: Call) -> Annotated[Answer, MEDIA]:
    return _shown(call, _group(call, directory_groups.group(call.plane.store, call.params["id"])))


def create_group(call: Call) -> Annotated[Answer, MEDIA, 201]:
    new = DirectoryGroup(id=call.plane.random_id(), name="", created_at=call.plane.clock.now())
    return _made(call, _saved(call, resources.read(call.body), new))


def replace_group(call: Call) -> Annotated[Answer, MEDIA]:
    known = directory_groups.group(call.plane.store, call.params["id"])
    return _shown(call, _saved(call, resources.read(call.body), known))


def patch_group(call: Call) -> Annotated[Answer, MEDIA]:
    known = directory_groups.group(call.plane.store, call.params["id"])
    return _shown(call, _saved(call, _patched(call, _group(call, known)), known))


def delete_group(call: Call) -> Annotated[Answer, 204]:
    directory_groups.remove(call.plane, call.actor, call.params["id"])
    return Answer(b"", status=204)


def _saved(call: Call, wanted: Mapping[str, Any], known: DirectoryGroup) -> scim.ScimGroup:
    return _group(call, directory_groups.save(call.plane, call.actor, resources.group_of(wanted, known)))


def _group(call: Call, group: DirectoryGroup) -> scim.ScimGroup:
    return wire.group_json(group, _base(call))


# --- what both have ---------------------------------------------------------------------------------------------------


def _base(call: Call) -> str:
    return call.plane.people_url.rstrip("/")


def _patched(call: Call, known: Mapping[str, Any]) -> patch.Resource:
    said = {name.lower(): value for name, value in resources.read(call.body).items()}
    return patch.apply(known, said.get("operations"))


def _page(call: Call, rows: Sequence[T], texts: Texts[T], shown: Callable[[T], Mapping[str, Any]]) -> Answer:
    if "filter" in call.query:
        known = {name.lower(): found for name, found in texts.items()}
        for condition in filters.parse(call.query["filter"], texts):
            rows = [row for row in rows if any(map(condition.holds, known[condition.attribute](row)))]
    start = max(1, resources.number(call.query, "startIndex", 1))
    count = min(LONGEST_PAGE, max(0, resources.number(call.query, "count", LONGEST_PAGE)))
    page = [_cut(call, shown(row)) for row in rows[start - 1 : start - 1 + count]]
    return _answer(call, wire.listed(page, len(rows), start))


def _cut(call: Call, resource: Mapping[str, Any]) -> dict[str, Any]:
    """The resource with the attributes that the query asks for."""
    only, but = (
        {filters.plain(each.strip()).partition(".")[0].lower() for each in call.query.get(name, "").split(",")} - {""}
        for name in ("attributes", "excludedAttributes")
    )
    always = {"schemas", "id"}
    return {
        name: value
        for name, value in resource.items()
        if name in always or ((not only or name.lower() in only) and name.lower() not in but)
    }


def _shown(call: Call, resource: Mapping[str, Any]) -> Answer:
    return _answer(call, _cut(call, resource))


def _made(call: Call, resource: Mapping[str, Any]) -> Answer:
    return replace(_shown(call, resource), status=201, headers={"Location": resource["meta"]["location"]})


def _answer(call: Call, value: Any) -> Answer:
    return Answer(encode(value, call.plane.limits.answer), content_type=MEDIA)
