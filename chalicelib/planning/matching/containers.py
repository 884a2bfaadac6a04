"""What a job needs that a container can't have, or not everywhere, where a container is sold in place of a machine.

Such a container is created for one job, from the job's image, and the agent is its first process. So whatever depends
on a machine that is there before the job, or outlives it, isn't possible: those needs no offer grants. The others an
offer may grant (`Offer.grants`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from chalicelib.domain.job_specs import JobSpec
from chalicelib.domain.offers import Offer
from chalicelib.domain.specs.mounts import MountPoint
from chalicelib.planning.matching.fitting import Blocks, Misfit
from chalicelib.planning.matching.machine_index import Query
from chalicelib.planning.volumes.mounts import may_differ, named_volumes

PRIVILEGED, USER, SHM_SIZE, VOLUMES = "privileged", "user", "shm_size", "volumes"
MULTINODE = "multinode"  # those of one region reach each other, and several are created together
NODES_LOGIN = "nodes_login"  # those several may have an image that needs a login
NODES_VOLUMES = "nodes_volumes"  # those several may have different volumes
NETWORK = "network"  # those of one region reach each other, whenever each was created
GRANTABLE = frozenset({PRIVILEGED, USER, SHM_SIZE, VOLUMES, MULTINODE, NODES_LOGIN, NODES_VOLUMES, NETWORK})

# Each need, why a container doesn't meet it, and what would help.
_REFUSALS = {
    "job": Misfit("it is created for a job, and can't wait for one", "set the fleet's `nodes` to begin with 0"),
    "blocks": Misfit("it can't be split into blocks", "use a fleet without `blocks`"),
    "beside": Misfit(
        "it reaches none of the service's other replicas, which are on machines",
        "name the `backends` of either kind in the run",
    ),
    "docker": Misfit("no engine of its own can run in it, as `docker` needs", "remove `docker`"),
    PRIVILEGED: Misfit("it can't be privileged", "remove `privileged`"),
    USER: Misfit("it can't run as another user than the image's own", "remove `user`"),
    SHM_SIZE: Misfit("the size of its shared memory is fixed", "remove `resources.shm_size`"),
    VOLUMES: Misfit("no volume can be mounted in it", "remove `volumes`"),
    NETWORK: Misfit(
        "it doesn't reach others, as replicas with a router do",
        "add a backend whose machines or containers reach each other",
    ),
    NODES_LOGIN: Misfit(
        "as one of several nodes it can't pull an image with a login",
        "use a public image without `registry_auth`, or run it on one node",
    ),
    NODES_VOLUMES: Misfit(
        "as one of several nodes it mounts the same volume as the others",
        "name one volume in `volumes`, without the node's number, or run it on one node",
    ),
    MULTINODE: Misfit(
        "it doesn't reach others, as the nodes of a task do",
        "run it on one node, or add a backend whose machines or containers reach each other",
    ),
}

# Where users write what may need more than a container. The `host` is a machine that somebody owns.
FIELDS = {
    PRIVILEGED: "`privileged`",
    USER: "`user`",
    SHM_SIZE: "`shm_size` of `resources`",
    VOLUMES: "`volumes` by name",
    MULTINODE: "`nodes`, and `groups` of them",
    NODES_LOGIN: "several `nodes` and `registry_auth`",
    NODES_VOLUMES: "several `nodes` whose `volumes` differ",
    NETWORK: "replicas that reach each other: a `router`, `${{ groups[0].replicas[0].IP_ADDRESS }}`",
    "docker": "`docker`",
    "host": "`volumes` with `instance_path` that aren't `optional`",
    "blocks": "`blocks` of a fleet",
    "job": "`nodes` of a fleet that begin with more than 0, or have such a `target`",
}


def needs_of_job(job: JobSpec, mounts: Sequence[MountPoint] = ()) -> frozenset[str]:
    """`mounts`: as its run writes them, for all of its nodes."""
    needs = {
        NETWORK: job.networked,
        "docker": job.docker,
        PRIVILEGED: job.privileged and not job.docker,
        USER: job.user is not None,
        SHM_SIZE: job.requirements.resources.shm_size is not None,
        VOLUMES: bool(named_volumes(job.volumes)),
        MULTINODE: job.jobs_per_replica > 1,
        NODES_VOLUMES: job.jobs_per_replica > 1 and may_differ(mounts),
        NODES_LOGIN: job.jobs_per_replica > 1 and job.registry_auth is not None,
    }
    return frozenset([need for need, applies in needs.items() if applies])


def needs_of_fleet(blocks: Blocks) -> frozenset[str]:
    return frozenset() if blocks == 1 else frozenset({"blocks"})


def without_job(query: Query) -> Query:
    """The query, for what is there before the job needs it, or may outlive it."""
    return query._replace(container=query.container | {"job"})


def reaching(query: Query, other: Offer) -> Query:
    """The query, for a job that reaches another one, which has a place by this offer: a container reaches containers of
    its region, and no machines."""
    if not other.is_container:
        return query._replace(container=query.container | {"beside"})
    return query._replace(backends=frozenset({other.backend.lower()}), regions=frozenset({other.region.lower()}))


def refusal(needs: Iterable[str]) -> Misfit:
    """Why no container will do, and a change that would help."""
    found = [_REFUSALS[need] for need in sorted(needs)]
    hint = ", ".join(dict.fromkeys(each.hint for each in found))
    return Misfit("; ".join(each.text for each in found), hint)
