"""SCIM's resources on the wire."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from chalicelib.api.scim import GROUP, LIST, LONGEST_PAGE, MOST_OPERATIONS, PREFIX, USER
from chalicelib.domain.instants import Micros, iso

if TYPE_CHECKING:
    from chalicelib.contract import scim
    from chalicelib.domain.directory import DirectoryGroup, Person
    from chalicelib.domain.tenants import User

_SCHEMA = "urn:ietf:params:scim:schemas:core:2.0:Schema"
_TYPE = "urn:ietf:params:scim:schemas:core:2.0:ResourceType"
_CONFIG = "urn:ietf:params:scim:schemas:core:2.0:ServiceProviderConfig"


def user_json(user: User, person: Person, base: str) -> scim.ScimUser:
    """`base`: the address before `/scim`."""
    found: scim.ScimUser = {
        "schemas": [USER],
        "id": user.id,
        "userName": person.user_name,
        "active": person.active,
        "meta": _meta("User", user.id, user.created_at, base),
    }
    if person.external_id:
        found["externalId"] = person.external_id
    if person.given_name or person.family_name:
        formatted = f"{person.given_name} {person.family_name}".strip()
        found["name"] = {"givenName": person.given_name, "familyName": person.family_name, "formatted": formatted}
    if person.display_name:
        found["displayName"] = person.display_name
    if person.email:
        found["emails"] = [{"value": person.email, "type": "work", "primary": True}]
    return found


def group_json(group: DirectoryGroup, base: str) -> scim.ScimGroup:
    found: scim.ScimGroup = {
        "schemas": [GROUP],
        "id": group.id,
        "displayName": group.name,
        "members": [{"value": each, "type": "User"} for each in group.members],
        "meta": _meta("Group", group.id, group.created_at, base),
    }
    if group.external_id:
        found["externalId"] = group.external_id
    return found


def listed(resources: Sequence[Any], total: int, start: int = 1) -> scim.Listed:
    return {
        "schemas": [LIST],
        "totalResults": total,
        "startIndex": start,
        "itemsPerPage": len(resources),
        "Resources": list(resources),
    }


def location(kind: Literal["User", "Group"], id: str, base: str) -> str:
    return f"{base}{PREFIX}{kind}s/{id}"


def _meta(kind: Literal["User", "Group"], id: str, created: Micros, base: str) -> scim.Meta:
    return {"resourceType": kind, "created": iso(created), "location": location(kind, id, base)}


# --- what there is ----------------------------------------------------------------------------------------------------


def config_json(base: str) -> dict[str, Any]:
    return {
        "schemas": [_CONFIG],
        "patch": {"supported": True, "maxOperations": MOST_OPERATIONS},
        "bulk": {"supported": False, "maxOperations": 0, "maxPayloadSize": 0},
        "filter": {"supported": True, "maxResults": LONGEST_PAGE},
        "changePassword": {"supported": False},
        "sort": {"supported": False},
        "etag": {"supported": False},
        "authenticationSchemes": [
            {
                "type": "oauthbearertoken",
                "name": "Bearer token",
                "description": "A token that an admin made with `dstack scim token create`.",
                "primary": True,
            }
        ],
        "meta": {"resourceType": "ServiceProviderConfig", "location": f"{base}{PREFIX}ServiceProviderConfig"},
    }


def types_json(base: str) -> list[dict[str, Any]]:
    kinds = (("User", USER, "People who use this server."), ("Group", GROUP, "Groups that give them roles."))
    return [
        {
            "schemas": [_TYPE],
            "id": kind,
            "name": kind,
            "endpoint": f"/{kind}s",
            "description": text,
            "schema": schema,
            "meta": {"resourceType": "ResourceType", "location": f"{base}{PREFIX}ResourceTypes/{kind}"},
        }
        for kind, schema, text in kinds
    ]


def schemas_json(base: str) -> list[dict[str, Any]]:
    return [
        {
            "schemas": [_SCHEMA],
            "id": urn,
            "name": name,
            "attributes": attributes,
            "meta": {"resourceType": "Schema", "location": f"{base}{PREFIX}Schemas/{urn}"},
        }
        for urn, name, attributes in ((USER, "User", _USER_ATTRIBUTES), (GROUP, "Group", _GROUP_ATTRIBUTES))
    ]


def _attribute(name: str, kind: str = "string", **more: Any) -> dict[str, Any]:
    usual = {"multiValued": False, "required": False, "caseExact": False, "mutability": "readWrite"}
    return {"name": name, "type": kind, **usual, "returned": "default", "uniqueness": "none", **more}


_USER_ATTRIBUTES = [
    _attribute("userName", required=True, uniqueness="server"),
    _attribute("externalId", caseExact=True),
    _attribute(
        "name",
        "complex",
        subAttributes=[
            _attribute("givenName"),
            _attribute("familyName"),
            _attribute("formatted", mutability="readOnly"),
        ],
    ),
    _attribute("displayName"),
    _attribute(
        "emails",
        "complex",
        multiValued=True,
        subAttributes=[_attribute("value"), _attribute("type"), _attribute("primary", "boolean")],
    ),
    _attribute("active", "boolean"),
]
_GROUP_ATTRIBUTES = [
    _attribute("displayName", required=True, uniqueness="server"),
    _attribute("externalId", caseExact=True),
    _attribute(
        "members",
        "complex",
        multiValued=True,
        subAttributes=[
            _attribute("value", mutability="immutable"),
            _attribute("type", mutability="immutable", canonicalValues=["User"]),
        ],
    ),
]
