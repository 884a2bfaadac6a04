"""What the user of a kubeconfig must be allowed to do: the smallest role.

`check` asks for each of these; `docs/examples/kubernetes/role.yml` grants them, and a test compares the two.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Rule:
    resource: str
    verbs: tuple[str, ...]
    cluster: bool = False  # in all namespaces, or of what is in none
    what_for: str = ""  # for whoever lacks it


RULES: tuple[Rule, ...] = (
    Rule("nodes", ("list",), cluster=True, what_for="offers: what each node has"),
    Rule("pods", ("list",), cluster=True, what_for="offers: what the pods of others take of it"),
    Rule("pods", ("create", "delete", "get", "patch"), what_for="to run jobs"),
    Rule("secrets", ("create", "delete"), what_for="the settings of their agents"),
)
GATEWAYS: tuple[Rule, ...] = (  # where they are reached through Services
    Rule("services", ("create", "delete", "get", "list"), what_for="gateways"),
)
OPTIONAL: tuple[Rule, ...] = (
    Rule("pods", ("watch",), what_for="changes of pods as they happen"),
    Rule("services", ("create", "delete", "get"), what_for="tasks on several nodes: names for their pods"),
    Rule("persistentvolumeclaims", ("create", "delete", "get", "list"), what_for="volumes"),
    Rule("events", ("list",), what_for="why a pod doesn't start"),
    Rule("resourcequotas", ("list",), what_for="offers: what quotas leave"),
    Rule("limitranges", ("list",), what_for="offers: what containers may have"),
    Rule("resourceslices", ("list",), cluster=True, what_for="offers: devices of DRA, which jobs can't have"),
    Rule("namespaces", ("get",), cluster=True, what_for="which cluster it is: the id of kube-system"),
    Rule("namespaces", ("get",), what_for="what Pod Security demands of pods"),
)


def verbs(rules: tuple[Rule, ...]) -> list[tuple[Rule, str]]:
    return [(rule, verb) for rule in rules for verb in rule.verbs]
