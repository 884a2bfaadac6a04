"""Events: the history of every noun, each event appended in the same commit as the change it describes.

History, audit, `dstack event` and the cost ledger all read this log, so an event is never written apart from its change
and never altered. It carries data; `message` makes the sentence from it, so wording can improve without rewriting
history. Older events that were stored as sentences keep them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Literal, Self

from pydantic import AliasChoices, Field

from chalicelib.domain import keys
from chalicelib.domain.instants import Micros
from chalicelib.domain.noun import Noun, Value
from chalicelib.domain.offers import Offer

EVERYWHERE = ""  # the project of events that belong to the installation, such as those of its users


class EventType(StrEnum):
    """What happened. Values are stored, so none ever changes its meaning; add new ones at the end."""

    status = "status"  # `before` → `after`, for `reason`
    created = "created"
    changed = "changed"  # `fields`
    deleted = "deleted"
    ordered = "ordered"  # a machine, from a backend: `trade`; what a market was asked for it: `detail`
    resubmitted = "resubmitted"  # a job, for the `number`-th time
    repeated = "repeated"  # an effect that failed with `reason` is retried
    failed = "failed"  # an effect failed with `reason`
    found = "found"  # a host's `fields` have changed
    unreachable = "unreachable"
    reachable = "reachable"
    paused = "paused"  # a fleet can't grow now, or a rollout doesn't go on: `detail`
    stuck = "stuck"  # processing a unit failed with `reason`; it is retried
    token_replaced = "token_replaced"  # noqa: S105 - no token
    token_created = "token_created"  # noqa: S105 - likewise: an access token of a user: `detail`
    token_revoked = "token_revoked"  # noqa: S105
    keys_replaced = "keys_replaced"
    members_changed = "members_changed"
    orphaned = "orphaned"  # a resource with our tag that belongs to no noun was first seen
    reclaimed = "reclaimed"  # such a resource is being removed
    missing = "missing"  # an instance, or a volume, was first found missing from the cloud's list
    step_done = "step_done"  # of a workflow: `detail`
    step_undone = "step_undone"
    health = "health"  # of an instance: `before` → `after`, because of `detail`
    key_added = "key_added"  # a user's public key: `detail`
    key_deleted = "key_deleted"
    automated = "automated"  # a rule did something with a stored configuration, or couldn't: `detail`
    signed_on = "signed_on"  # a user, with an account at `detail`
    ready = "ready"  # a service's replica may get requests
    scaled = "scaled"  # a service, `before` → `after` replicas, because of `detail`


class Target(Value):
    type: str  # project, user, fleet, instance, run, job, workflow, gang, volume, gateway, certificate, secret, …
    id: str
    name: str


class Trade(Value):
    """A machine, or a job's share of one, that is bought, taken or returned, and its price while held."""

    act: Literal["bought", "taken", "returned"]
    price: float  # dollars an hour
    backend: str
    region: str
    type: str  # the provider's name of the machine
    spot: bool = False
    cpus: int
    memory_mib: int
    gpus: int = 0
    gpu: str = ""  # their name, where there are any

    @classmethod
    def of(cls, act: Literal["bought", "taken", "returned"], offer: Offer) -> Self:
        machine = offer.instance
        has = machine.resources
        gpus = has.gpus
        return cls.unvalidated(
            act=act,
            price=offer.price,
            backend=offer.backend,
            region=offer.region,
            type=machine.name,
            spot=has.spot,
            cpus=has.cpus,
            memory_mib=has.memory_mib,
            gpus=len(gpus),
            gpu=gpus[0].name if gpus else "",
        )


class Event(Noun):
    id: str
    project_id: str
    at: Micros
    type: EventType | None = None  # None: an old event, stored as a sentence in `words`
    words: str = Field(default="", validation_alias=AliasChoices("words", "message"))
    before: str | None = None
    after: str | None = None
    reason: str | None = None  # a reason's value, or the name of an error
    detail: str = ""  # free text: where a job was placed, the cloud's message
    fields: tuple[str, ...] = ()
    number: int | None = None
    trade: Trade | None = None
    actor_id: str | None = None  # None: the control plane itself
    actor_name: str | None = None
    actor_token: str | None = None  # the name of their access token, if they used one
    targets: tuple[Target, ...]
    run_id: str | None = None  # the run it happened within, if any
    fleet_id: str | None = None

    @property
    def message(self) -> str:
        """The event as a sentence."""
        return self.words if self.type is None else _SENTENCES[self.type](self)

    def place(self) -> keys.Place:
        key = keys.event(self.project_id, self.at, self.id)
        run = (keys.run_events(self.run_id), key.sk) if self.run_id else None
        fleet = (keys.fleet_events(self.fleet_id), key.sk) if self.fleet_id else None
        return keys.Place(key, run, fleet)


def _status(event: Event) -> str:
    """A change of status, with the reason at `terminating`. Only runs repeat it at the final status, because their line
    may be read alone."""
    moved = f"{event.before} → {event.after}"
    if event.targets[0].type in ("workflow", "gang"):
        return _joined(f"{event.targets[0].type} {moved}", event.detail)
    if event.targets[0].type == "certificate":
        return _joined(f"{_named(event)}{moved}", event.detail)
    with_reason = event.after == "terminating" or event.targets[0].type == "run"
    return _joined(moved, _spaced(event.reason) if with_reason else "", event.detail)


def _created(event: Event) -> str:
    words = {
        "run": "submitted",
        "job": "created; waiting for capacity",
        "secret": "set",
        "backend": "backend configured",
        "workflow": "workflow started",
        "gang": "claims its places",
        "automation": f"configuration {event.targets[0].name} stored",
        "certificate": f"certificate for {event.targets[0].name} requested",
    }
    return _joined(words.get(event.targets[0].type, "created"), event.detail)


def _changed(event: Event) -> str:
    """A change of fields; for backends the sentence names what has changed."""
    text = f"{_named(event)}changed"
    return _joined(text, _spaced(", ".join(event.fields)), event.detail)


def _named(event: Event) -> str:
    """The subject of the event, if clients don't know its type and show only its project."""
    target = event.targets[0]
    named = {"automation": f"configuration {target.name} ", "certificate": f"certificate of {target.name}: "}
    return {"backend": "backend ", **named}.get(target.type, "")


def _ordered(event: Event) -> str:
    assert event.trade is not None, "an order says what is bought"
    job = next((target.name for target in event.targets if target.type == "job"), None)
    origin = f" ({event.detail})" if event.detail else ""
    return f"ordered for {job or 'the fleet'}: {event.trade.type} from {event.trade.backend}{origin}"


def _missing(event: Event) -> str:
    what = "it" if event.targets[0].type == "volume" else "its machine"
    return f"the cloud doesn't list {what}; it will be closed if the next sweep agrees"


def _scaled(event: Event) -> str:
    same = event.before == event.after
    return event.detail if same else _joined(f"replicas {event.before} → {event.after}", event.detail)


def _joined(first: str, *rest: str) -> str:
    text = ", ".join(part for part in rest if part)
    return f"{first}: {text}" if text else first


def _spaced(name: str | None) -> str:
    return (name or "").replace("_", " ")


_SENTENCES: Mapping[EventType, Callable[[Event], str]] = {
    EventType.status: _status,
    EventType.created: _created,
    EventType.changed: _changed,
    EventType.deleted: lambda event: _joined(f"{_named(event)}deleted", event.detail),
    EventType.ordered: _ordered,
    EventType.resubmitted: lambda event: f"resubmitted, attempt {event.number}",
    EventType.repeated: lambda event: f"the purchase failed and will be retried: {event.detail}",
    EventType.failed: lambda event: f"{_named(event)}{event.reason}: {event.detail}",
    EventType.found: lambda event: _joined("its agent reports changes", _spaced(", ".join(event.fields))),
    EventType.unreachable: lambda event: "unreachable: its agent missed a report",
    EventType.reachable: lambda event: "reachable again",
    EventType.paused: lambda event: event.detail,
    EventType.stuck: lambda event: f"processing failed and will be retried ({event.reason}: {event.detail})",
    EventType.token_replaced: lambda event: _joined("token replaced", event.detail),
    EventType.token_created: lambda event: _joined("access token created", event.detail),
    EventType.token_revoked: lambda event: _joined("access token revoked", event.detail),
    EventType.keys_replaced: lambda event: "SSH keys replaced",
    EventType.members_changed: lambda event: "members changed",
    EventType.signed_on: lambda event: f"signed on with {event.detail}",
    EventType.scaled: _scaled,
    EventType.ready: lambda event: "ready to receive requests",
    EventType.orphaned: lambda event: f"{event.detail} is an orphan; it will be removed if the next sweep agrees",
    EventType.reclaimed: lambda event: f"{event.detail} is an orphan and is being removed",
    EventType.missing: _missing,
    EventType.step_done: lambda event: _joined("done", event.detail),
    EventType.health: lambda event: _joined(f"health {event.before} → {event.after}", event.detail),
    EventType.key_added: lambda event: _joined("public key added", event.detail),
    EventType.key_deleted: lambda event: _joined("public key deleted", event.detail),
    EventType.automated: lambda event: event.detail,
    EventType.step_undone: lambda event: _joined("undone", event.detail),
}
