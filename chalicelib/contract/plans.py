"""Plans: what applying a configuration would do."""

from __future__ import annotations

from typing_extensions import TypedDict

from chalicelib.contract.fleets import Fleet
from chalicelib.contract.gateways import Gateway
from chalicelib.contract.offers import Offer, OffersAge, OffersAsked
from chalicelib.contract.runs import Run
from chalicelib.contract.specs import FleetSpec, GatewaySpec, JobSpec, RunSpec
from chalicelib.contract.values import PlanAction


class Note(TypedDict):
    """Why a candidate was ruled out, or what a job waits for."""

    subject: str
    """A fleet, an instance, an offer."""
    text: str
    hint: str
    waits: bool
    """The job waits until this changes."""


class JobPlan(TypedDict):
    """A job, and the offers that it could have, cheapest first."""

    job_spec: JobSpec
    offers: list[Offer]
    total_offers: int
    max_price: float | None
    count: int
    """How many such jobs start."""


class RunPlan(TypedDict):
    """What applying a run would do."""

    project_name: str
    user: str
    run_spec: RunSpec
    effective_run_spec: RunSpec
    """With everything that the control plane fills in."""
    job_plans: list[JobPlan]
    current_resource: Run | None
    action: PlanAction
    replaces: list[str]
    """The groups of replicas that an update replaces, one replica after the other."""
    notes: list[Note]
    delays: str
    isolation: list[str]
    """A line for each fleet that separates jobs by less than containers."""
    remarks: list[str]
    quota: list[str]
    """How much of the quota is used, and whether the run has to wait for it."""
    offers_as_of: list[OffersAge]
    offers_asked: list[OffersAsked]


class FleetPlan(TypedDict):
    """What applying a fleet would do."""

    project_name: str
    user: str
    spec: FleetSpec
    effective_spec: FleetSpec
    current_resource: Fleet | None
    offers: list[Offer]
    total_offers: int
    max_offer_price: float | None
    action: PlanAction
    remarks: list[str]


class GatewayPlan(TypedDict):
    """What applying a gateway would do."""

    project_name: str
    user: str
    spec: GatewaySpec
    effective_spec: GatewaySpec
    current_resource: Gateway | None
    action: PlanAction
    changes: list[str]
    """The keys that an update changes."""
    remarks: list[str]
