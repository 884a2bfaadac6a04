"""Invariants of plans that change gateways or certificates: a replica and the seat on its machine begin in one commit,
no machine is forgotten, and a call to an authority is committed before it is made.
"""

from __future__ import annotations

from collections.abc import Iterator

from chalicelib.domain.certificates import Certificate, CertificateStatus
from chalicelib.domain.gateways import Gateway, ReplicaState
from chalicelib.domain.instances import Instance, InstanceStatus
from chalicelib.planning.gateways.certificates import (
    AnswerChallenge,
    CollectCertificate,
    LookAtOrder,
    PlaceOrder,
)
from chalicelib.planning.kernel.lint import Known
from chalicelib.planning.kernel.plan import Step


def gateways(step: Step, known: Known) -> Iterator[str]:
    saved = {noun.id: noun for noun in step.saves if isinstance(noun, Gateway)}
    for gateway in saved.values():
        if gateway.due_at is None and not gateway.deleted:
            yield f"gateway {gateway.name} is {gateway.status.value}, but nothing will look at it again"
        if gateway.deleted and gateway.replicas:
            yield f"gateway {gateway.name} is deleted while a machine carries it"
        machines = [each.instance_id for each in gateway.replicas]
        if len({each.num for each in gateway.replicas}) < len(machines) or len(set(machines)) < len(machines):
            yield f"gateway {gateway.name} has a number or a machine twice"
    for machine in step.saves:
        if isinstance(machine, Instance):
            yield from _seat(machine, saved, known)
    for gateway in saved.values():
        yield from _dropped(gateway, step, known)


def _seat(machine: Instance, saved: dict[str, Gateway], known: Known) -> Iterator[str]:
    before = known.get((Instance, machine.id))
    seat, had = machine.gateway, before.gateway if isinstance(before, Instance) else None
    if seat is not None and (had is None or had.gateway_id != seat.gateway_id):
        gateway = saved.get(seat.gateway_id)
        if gateway is None or machine.id not in {each.instance_id for each in gateway.replicas}:
            yield f"instance {machine.name} gets a seat that is no replica of this step"
    if had is not None and not had.leaving and (seat is None or seat.gateway_id != had.gateway_id):
        yield f"instance {machine.name} loses its seat before its agent knows"


def _dropped(gateway: Gateway, step: Step, known: Known) -> Iterator[str]:
    """No machine goes on serving after its replica has been dropped."""
    before = known.get((Gateway, gateway.id))
    had = before.replicas if isinstance(before, Gateway) else ()
    now = {noun.id: noun for noun in step.saves if isinstance(noun, Instance)}
    staying = {each.instance_id for each in gateway.replicas if each.state is not ReplicaState.terminating}
    for replica in had:
        machine = now.get(replica.instance_id) or known.get((Instance, replica.instance_id))
        if replica.instance_id in staying or not isinstance(machine, Instance) or machine.gateway is None:
            continue
        ends = machine.status in (InstanceStatus.terminating, InstanceStatus.terminated)
        if machine.gateway.gateway_id == gateway.id and not machine.gateway.leaving and not ends:
            yield f"gateway {gateway.name} drops its replica on {machine.name}, which goes on"


_STATUS_FOR_CALL = {
    PlaceOrder: (CertificateStatus.waiting,),
    AnswerChallenge: (CertificateStatus.ordered,),
    LookAtOrder: (CertificateStatus.validating,),
    CollectCertificate: (CertificateStatus.finalizing,),
}


def certificates(step: Step, known: Known) -> Iterator[str]:
    """The authority is called only as committed, and validation is requested only once the host answers. A certificate
    isn't given up before its successor exists, a dropped one has no key, and all others stay due."""
    saved = {noun.unit: noun for noun in step.saves if isinstance(noun, Certificate)}
    for certificate in saved.values():
        name = f"the certificate of {certificate.name}"
        if certificate.dropped and (certificate.order or certificate.pair):
            yield f"{name} is dropped with its key"
        if not certificate.dropped and certificate.due_at is None:
            yield f"{name} is {certificate.status.value}, but nothing will look at it again"
        if certificate.status is CertificateStatus.issued and certificate.pair is None:
            yield f"{name} is issued, and isn't there"
        before = known.get((Certificate, certificate.id))
        if isinstance(before, Certificate) and before.pair and not certificate.pair and not certificate.dropped:
            yield f"{name} is given up before its successor is there"
    for effect in step.effects:
        statuses = _STATUS_FOR_CALL.get(type(effect))
        if statuses is None:
            continue
        intended = saved.get(effect.unit)
        if intended is None or intended.act_until != effect.act_until or intended.status not in statuses:
            yield f"{effect.unit} is to {type(effect).__name__} without committing it"
        elif isinstance(effect, AnswerChallenge) and intended.order and intended.order.token and not intended.heard:
            yield f"the authority is to look at {intended.name}, which doesn't answer yet"
