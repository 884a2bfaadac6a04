"""Spot pods, which Runpod may take back at any time. Only its older GraphQL API sells them: for a bid, in dollars an
hour for each GPU. What is offered and bid is the lowest bid that Runpod takes then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from chalicelib.backends.runpod.client import CREATE, Body, Client

RENT = "mutation($input: PodRentInterruptableInput!) { podRentInterruptable(input: $input) { id } }"
CHANGES = "query { myself { pods { id lastStatusChange } } }"


@dataclass(frozen=True)
class SpotPrice:
    """Of a GPU, for pods with as many as was asked for."""

    bid: float
    cpus: int  # the least that such a pod has; 0: unknown
    memory_gib: int


def spot_prices(
    client: Client, count: int, places: Sequence[str], *, is_secure: bool
) -> Mapping[tuple[str, str], SpotPrice]:
    """By the GPU's name and the place, for whatever can be bid for. `places`: data centers; empty: wherever it is."""
    variables: dict[str, Any] = {"count": count, "secure": is_secure}
    declared, fields = ["$count: Int!", "$secure: Boolean!"], []
    for n, place in enumerate(places):
        here = ""
        if place:
            variables[f"place{n}"], here = place, f", dataCenterId: $place{n}"
            declared.append(f"$place{n}: String!")
        least = f"lowestPrice(input: {{gpuCount: $count, secureCloud: $secure{here}}})"
        fields.append(f"at{n}: {least} {{ minimumBidPrice minVcpu minMemory }}")
    query = f"query({', '.join(declared)}) {{ gpuTypes {{ id {' '.join(fields)} }} }}"
    found: dict[tuple[str, str], SpotPrice] = {}
    for body in client.graphql(query, variables)["gpuTypes"] or ():
        for n, place in enumerate(places):
            there = body.get(f"at{n}") or {}
            if bid := float(there.get("minimumBidPrice") or 0):
                size = int(there.get("minVcpu") or 0), int(there.get("minMemory") or 0)
                found[str(body["id"]), place] = SpotPrice(bid, *size)
    return found


def cluster_prices(client: Client) -> Mapping[str, float]:
    """Of a GPU in a cluster, an hour, by the GPU's name."""
    bodies = client.graphql("query { gpuTypes { id clusterPrice } }")["gpuTypes"] or ()
    return {str(body["id"]): float(body["clusterPrice"]) for body in bodies if body.get("clusterPrice")}


def rent(client: Client, pod: Mapping[str, Any], *, region: str, secrets: Sequence[str]) -> str:
    """The id of a new pod, which REST shows like any other; empty: the answer names none."""
    answer = client.graphql(RENT, {"input": pod}, region=region, secrets=secrets, deadline=CREATE)
    return str((answer.get("podRentInterruptable") or {}).get("id") or "")


def changes(client: Client) -> Mapping[str, str]:
    """What has last become of each pod, and by whom: `Exited by user: …`, `Exited by Runpod: …`."""
    me: Body = client.graphql(CHANGES)["myself"] or {}
    return {str(each["id"]): str(each.get("lastStatusChange") or "") for each in me.get("pods") or ()}
