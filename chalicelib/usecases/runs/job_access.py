"""`dstack: true`: the jobs of a run call this control plane as the run's user, in its project, until the run ends.

Rule 1: the run's token is good exactly as long as the run hasn't ended, which the call that uses it reads beside it.
Rule 2: it may submit, stop and see runs of its project, as a plain member does, even if its user is an admin.
Rule 3: no token makes a token. So a run that was submitted with one gets none, and nobody but its user changes a run
that has one: its commands would act in that user's name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from chalicelib.domain import keys
from chalicelib.domain.access_tokens import MOST, SIGNING, AccessToken, ScopedProject, TokenClaims, Verb, text_of
from chalicelib.domain.contacts import Contact
from chalicelib.domain.instances import Instance
from chalicelib.domain.instants import SECOND
from chalicelib.domain.job_specs import JobSpec
from chalicelib.domain.jobs import Job
from chalicelib.domain.runs import Run
from chalicelib.domain.specs.runs import RunSpec
from chalicelib.domain.tenants import Project, ProjectRole, User, hash_token
from chalicelib.engine.bootstrap_tokens import keyed
from chalicelib.errors import Bug, Problem, Refused
from chalicelib.loopback import is_loopback
from chalicelib.planning.matching.isolation import without_docker
from chalicelib.store import nouns
from chalicelib.store.port import Change, Put, Record
from chalicelib.usecases.ports import CredentialPorts, SealedPorts

VERBS = (Verb.read, Verb.run)
_FIELD = "configuration.dstack"


class GrantPorts(SealedPorts, CredentialPorts, Protocol):
    """The ports for making a run's token."""

    @property
    def random_id(self) -> Callable[[], str]: ...


class DeliveryPorts(SealedPorts, Protocol):
    """The ports for giving it to a job."""

    @property
    def people_url(self) -> str: ...


def refusals(user: User, role: ProjectRole | None, spec: RunSpec) -> list[Problem]:
    """Why this user's run can have no token."""
    if not spec.configuration.dstack:
        return []
    if user.by_token:
        text = f"the access token {user.by_token} can't submit a run that gets a token of its own"
        return [Problem(text, path=_FIELD, hint="submit it with your own token, or remove `dstack`")]
    if role is None:
        text = f"its jobs would call as a member of the project, and {user.name} is none"
        return [Problem(text, path=_FIELD, hint=f"dstack project add-member {user.name}")]
    return []


def obstacles(user: User, run: Run, spec: RunSpec) -> list[str]:
    """Why this user may not change the run."""
    own = user.id == run.user_id and not user.by_token
    return [f"its jobs act in the name of {run.user_name}"] if spec.configuration.dstack and not own else []


def granted(plane: GrantPorts, project: Project, run: Run) -> list[Change]:
    """What makes the run's token valid, in the commit that submits it."""
    now = run.submitted_at
    expires_at = now // SECOND * SECOND + MOST
    claims = TokenClaims(run.user_id, expires_at, frozenset(VERBS), frozenset({project.name}), run.id)
    text = text_of(keyed(plane.install_key, SIGNING), claims, plane.random_token())
    entry = AccessToken(
        id=plane.random_id(),
        user_id=run.user_id,
        name=f"run/{run.name}",
        token_hash=hash_token(text),
        created_at=now,
        expires_at=expires_at,
        verbs=VERBS,
        projects=(ScopedProject(id=project.id, name=project.name),),
        run_id=run.id,
        sealed=plane.seal.seal(text, context=_context(run.id)),
    )
    pointer = nouns.pointer(keys.run_of_token(entry.token_hash), run.id).record
    found = Record(pointer.key, pointer.version, pointer.body, expires_at=expires_at // SECOND)
    return [nouns.put(entry), Put(found, expect=0)]


def environment(
    plane: DeliveryPorts, job: Job, spec: JobSpec, instance: Instance, project: str, *, host_network: bool
) -> dict[str, str]:
    """The variables with which the job calls this control plane. Raises Refused if it couldn't reach it."""
    if not spec.dstack:
        return {}
    entry = nouns.find(plane.store, AccessToken, keys.run_access(job.run_id))
    if entry is None:
        raise Bug(f"run {job.run_id} has `dstack: true` and no token")
    return {
        "DSTACK_SERVER_URL": _address(plane, instance, host_network=host_network or without_docker(instance)),
        "DSTACK_PROJECT": project,
        "DSTACK_TOKEN": plane.seal.open(entry.sealed, context=_context(job.run_id)),
    }


def _address(plane: DeliveryPorts, instance: Instance, *, host_network: bool) -> str:
    url = plane.people_url
    contact = None if instance.host is None else nouns.find(plane.store, Contact, keys.contact(instance.id))
    if contact is not None and (contact.tunnel or contact.relay is not None):
        raise Refused(
            f"`dstack: true`: {instance.name} can't reach this control plane at {url}: its agent's calls go over SSH.",
            hint="Run it on a machine that reaches it.",
        )
    if is_loopback(url) and (instance.host is not None or not host_network):
        raise Refused(
            f"`dstack: true`: the job can't reach this control plane, which listens at {url} only.",
            hint="Start the server with --host and --public-url.",
        )
    return url


def _context(run_id: str) -> str:
    return f"run-access/{run_id}"
