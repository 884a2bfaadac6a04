"""Who may do what: the rules of real Roles and ClusterRoles, as they are written in YAML."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import yaml

from tests.backends.kubernetes.fake import errors

ADMIN = "admin"


class Access(NamedTuple):
    verb: str
    group: str
    resource: str  # pods, pods/exec
    namespace: str = ""  # empty: the whole cluster
    name: str = ""


class Grant(NamedTuple):
    namespace: str  # empty: a ClusterRoleBinding
    rule: Mapping[str, Any]


@dataclass
class Users:
    tokens: dict[str, str] = field(default_factory=dict)  # to the names of users
    grants: dict[str, list[Grant]] = field(
        default_factory=dict
    )  # a user without any is an administrator, if it's ADMIN

    def user(self, token: str, name: str) -> None:
        self.tokens[token] = name

    def grant(self, user: str, roles: str, namespace: str = "") -> None:
        """Binds the Roles and ClusterRoles in this YAML to the user: a Role in its own namespace, or this one; a
        ClusterRole everywhere. Other documents in it, as bindings and accounts, are skipped."""
        for role in yaml.safe_load_all(roles):
            if role and role["kind"] in ("Role", "ClusterRole"):
                own = role["metadata"].get("namespace") or namespace
                assert own or role["kind"] == "ClusterRole", f"in which namespace is {role['metadata']['name']}?"
                where = own if role["kind"] == "Role" else ""
                self.grants.setdefault(user, []).extend(Grant(where, rule) for rule in role["rules"])

    def allows(self, user: str, access: Access) -> bool:
        return user == ADMIN or any(
            grant.namespace in ("", access.namespace) and _covers(grant.rule, access)
            for grant in self.grants.get(user, ())
        )

    def authorize(self, user: str, access: Access) -> None:
        if self.allows(user, access):
            return
        resource, _, _ = access.resource.partition("/")
        where = f'in the namespace "{access.namespace}"' if access.namespace else "at the cluster scope"
        qualified = f"{resource}.{access.group}" if access.group else resource
        subject = f'{qualified} "{access.name}"' if access.name else qualified
        message = (
            f'{subject} is forbidden: User "{user}" cannot {access.verb} resource "{access.resource}" '
            f'in API group "{access.group}" {where}'
        )
        details = {**({"name": access.name} if access.name else {}), "group": access.group, "kind": resource}
        raise errors.refusal(403, "Forbidden", message, {key: each for key, each in details.items() if each})


def _covers(rule: Mapping[str, Any], access: Access) -> bool:
    names = rule.get("resourceNames")
    return (
        _listed(rule.get("verbs", ()), access.verb)
        and _listed(rule.get("apiGroups", ()), access.group)
        and (_listed(rule.get("resources", ()), access.resource))
        and (not names or access.name in names)
    )


def _listed(listed: Iterable[str], wanted: str) -> bool:
    return "*" in listed or wanted in listed
