"""Offers: machines that a run could have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import ConfigDict, Field

from chalicelib.api.requests import RequestBody
from chalicelib.api.route import Answer, Call, asks
from chalicelib.api.v1 import answers
from chalicelib.api.wire.v1.machines import offer_json
from chalicelib.usecases.runs import plans

if TYPE_CHECKING:
    from chalicelib import contract


Text = Annotated[str, Field(max_length=200)]


class OfferQuery(RequestBody):
    """Requirements, as in a configuration. Several backends or regions have commas between them."""

    model_config = ConfigDict(extra="forbid")

    cpu: Text = "1.."
    memory: Text = "0GB.."
    disk: Text | None = None
    gpu: Text = "0.."
    spot_policy: Literal["spot", "on-demand", "auto"] = "on-demand"
    max_price: Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False)] | None = None
    backends: Text = ""
    regions: Text = ""
    limit: Annotated[int, Field(ge=1, le=answers.LONGEST_PAGE)] = answers.PAGE

    def configuration(self) -> dict[str, Any]:
        resources = {"cpu": self.cpu, "memory": self.memory, "gpu": self.gpu, "disk": self.disk}
        task = {"type": "task", "commands": [":"], "image": "scratch", "user": "root", "resources": resources}
        lists = {"backends": self.backends, "regions": self.regions}
        return {
            **task,
            "spot_policy": self.spot_policy,
            "max_price": self.max_price,
            **{name: text.split(",") for name, text in lists.items() if text},
        }


@asks(OfferQuery)
def list_project(call: Call, query: OfferQuery) -> Annotated[Answer, contract.V1Offers]:
    """Machines that a task with these requirements could have, whether or not a fleet allows it: the cheapest first."""
    spec = {"run_name": None, "repo_id": "none", "repo_data": {"repo_type": "virtual"}}
    view = plans.PlanView(query.limit, beyond_fleets=True)
    plan = plans.get_plan(
        call.plane, call.actor, call.tenant, {**spec, "configuration": query.configuration()}, view, role=call.role
    )
    job = plan.jobs[0]
    items = [offer_json(offer) for offer in job.offers]
    return answers.resource(call, {"items": items, "total": job.total_offers})
