"""Invariants of plans that change volumes: none is deleted while it is in use, a disk is attached to one machine at a
time unless it is shareable, it leaves a machine only when its provider has shown that, and a job, its machine and its
volumes agree.
"""

from __future__ import annotations

from collections.abc import Iterator

from chalicelib.domain.instances import Instance
from chalicelib.domain.jobs import Job
from chalicelib.domain.volumes import Attachment, AttachmentState, Volume, VolumeStatus
from chalicelib.planning.kernel.lint import Known
from chalicelib.planning.kernel.plan import Step
from chalicelib.planning.volumes.attachments import AttachVolume, DetachVolume
from chalicelib.planning.volumes.volumes import CreateVolume, DeleteVolume, RegisterVolume


def volumes(step: Step, known: Known) -> Iterator[str]:
    """A volume is created, registered or deleted only as committed. One that is in use, or external, is never deleted
    at its provider. One that isn't settled stays due."""
    saved = {noun.unit: noun for noun in step.saves if isinstance(noun, Volume)}
    for volume in saved.values():
        unsettled = volume.status not in (VolumeStatus.deleted, VolumeStatus.failed) or volume.remains
        if volume.due_at is None and (unsettled or (volume.attachments and not volume.deleted)):
            yield f"volume {volume.name} is {volume.status.value}, but nothing will look at it again"
        if volume.deleted and volume.attachments:
            yield f"volume {volume.name} is deleted while it is attached"
    for effect in step.effects:
        intended = saved.get(effect.unit)
        if isinstance(effect, CreateVolume | RegisterVolume):
            if intended is None or intended.status != VolumeStatus.submitted:
                yield f"{effect.unit} is created without being submitted"
            elif intended.act_until != effect.act_until:
                yield f"volume {intended.name} is created with an act_until other than the committed one"
            elif intended.external != isinstance(effect, RegisterVolume):
                yield f"volume {intended.name} is registered though it isn't external, or created though it is"
        elif isinstance(effect, DeleteVolume):
            if intended is None or not (intended.status == VolumeStatus.deleting or intended.remains):
                yield f"{effect.unit} is to be deleted at its provider, but isn't being deleted"
            elif intended.attachments or intended.external:
                yield f"volume {intended.name} is to be deleted at its provider while it is attached, or isn't ours"


def attachments(step: Step, known: Known) -> Iterator[str]:
    volumes = {noun.id: noun for noun in step.saves if isinstance(noun, Volume)}
    for volume in volumes.values():
        old = known.get((Volume, volume.id))
        yield from _places(volume, old.attachments if isinstance(old, Volume) else ())
        yield from _listed(volume, step, known)
    for job in step.saves:
        if isinstance(job, Job) and not job.finished and job.assignment is not None:
            yield from _of_job(job, volumes, known)
    for effect in step.effects:
        if isinstance(effect, AttachVolume | DetachVolume):
            yield from _intended(effect, volumes)


def _places(volume: Volume, before: tuple[Attachment, ...]) -> Iterator[str]:
    """Attachments change only in steps that the provider has confirmed."""
    here = {each.instance_id for each in volume.attachments}
    if len(here) > 1 and not volume.shareable:
        yield f"volume {volume.name} is attached to two machines"
    was = {each.instance_id: each for each in before}
    for instance_id, attachment in was.items():
        requested = attachment.deadline is not None or attachment.state is not AttachmentState.attaching
        if instance_id not in here and requested and attachment.state is not AttachmentState.detaching:
            yield f"volume {volume.name} leaves {attachment.instance_name}, but nothing shows it detached"
    for attachment in volume.attachments:
        old, state = was.get(attachment.instance_id), attachment.state
        text = f"volume {volume.name} is {state.value} at {attachment.instance_name}"
        if old is None and state is not AttachmentState.attaching:
            yield f"{text}, where it wasn't before"
        if old is not None and old.state is AttachmentState.detaching and state is not old.state:
            yield f"{text} before it was detached from there"


def _listed(volume: Volume, step: Step, known: Known) -> Iterator[str]:
    """A machine lists every volume that is attached to it among its disks."""
    saved = {noun.id: noun for noun in step.saves if isinstance(noun, Instance)}
    for attachment in volume.attachments:
        instance = saved.get(attachment.instance_id) or known.get((Instance, attachment.instance_id))
        if isinstance(instance, Instance) and volume.id not in instance.disks:
            text = f"volume {volume.name} is {attachment.state.value} at {instance.name}"
            yield f"{text}, which doesn't have it among its disks"


def _of_job(job: Job, volumes: dict[str, Volume], known: Known) -> Iterator[str]:
    """A job is placed with its volumes."""
    old = known.get((Job, job.id))
    if job.assignment is None or (isinstance(old, Job) and old.assignment is not None):
        return
    for each in job.assignment.volumes:
        volume = volumes.get(each.id) or known.get((Volume, each.id))
        at = volume.attachments if isinstance(volume, Volume) else ()
        if (job.id, job.assignment.instance_id) not in {
            (attachment.job_id, attachment.instance_id) for attachment in at
        }:
            yield f"job {job.name} is placed without its volume {each.name}"


def _intended(effect: AttachVolume | DetachVolume, volumes: dict[str, Volume]) -> Iterator[str]:
    state = AttachmentState.attaching if isinstance(effect, AttachVolume) else AttachmentState.detaching
    volume = next((each for each in volumes.values() if each.unit == effect.unit), None)
    here = (
        []
        if volume is None
        else [attachment for attachment in volume.attachments if attachment.instance_id == effect.instance_id]
    )
    if not here or any((attachment.state, attachment.act_until) != (state, effect.act_until) for attachment in here):
        yield f"{effect.unit} is {state.value} at {effect.instance_id} without a committed act_until"
