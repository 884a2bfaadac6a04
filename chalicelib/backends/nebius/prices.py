"""What Nebius's calculator says that something costs, at the prices of the account's own contract."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from chalicelib.backends.nebius.client import NebiusClient
from chalicelib.errors import Transient

Body = Mapping[str, Any]


def create(kind: str, project: str, name: str, spec: Body) -> Body:
    """A request for something to be created, as the calculator takes it."""
    what = f"type.googleapis.com/nebius.compute.v1.Create{kind}Request"
    return {"@type": what, "metadata": {"parent_id": project, "name": name}, "spec": spec}


def hourly(client: NebiusClient, region: str, wanted: Sequence[Body]) -> dict[str, float]:
    """Dollars an hour for each, by its name. What the calculator has no price of is missing, and nothing is
    free."""
    answer = client.call(
        "billing.v1.CalculatorService",
        "EstimateBatch",
        {
            "resource_specs": [{"spec": each} for each in wanted],
            "currency": "usd",
            "filter_aggregation_unit": {"filter_aggregation_unit_values": ["FILTER_AGGREGATION_UNIT_HOUR"]},
        },
        region=region,
    )
    if str(answer.get("currency", "usd")).lower() != "usd":
        raise Transient(f"Nebius's calculator answers in {answer['currency']}, and was asked for dollars.")
    rows = [
        each
        for each in answer.get("resource_costs", ())
        if "hour" in str(each.get("aggregation_unit", {}).get("unit", "hour")).lower()
    ]
    names = [str(each.get("metadata", {}).get("name", "")) for each in rows]
    if not any(names) and len(rows) == len(wanted):  # the order is all that tells them apart
        names = [each["metadata"]["name"] for each in wanted]
    costs = [each.get("general", {}).get("total", {}).get("cost") for each in rows]
    return {name: float(cost) for name, cost in zip(names, costs, strict=True) if name and cost and float(cost) > 0}
