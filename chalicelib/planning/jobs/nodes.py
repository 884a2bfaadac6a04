"""Information for a job about its nodes: their addresses and GPUs, by rank, in variables and in a hostfile."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from chalicelib.domain.gangs import Gang
from chalicelib.domain.instances import Instance
from chalicelib.domain.job_specs import JobSpec
from chalicelib.domain.jobs import Job
from chalicelib.domain.offers import Interconnect

LOOPBACK = "127.0.0.1"
_ADDRESS = re.compile(r"(?<!\$)\$\{\{\s*groups\[([0-9]{1,6})\]\.nodes\[([0-9]{1,6})\]\.IP_ADDRESS\s*\}\}")


def address_of(instance: Instance) -> str:
    """The address at which other nodes reach an instance; empty if unknown. A local fleet is all on this machine."""
    return instance.internal_ip or (LOOPBACK if instance.local else "")


@dataclass(frozen=True)
class Nodes:
    addresses: tuple[str, ...]  # by rank
    gpus: tuple[int, ...]  # by rank
    groups: tuple[int, ...] = (1,)  # the size of each group; ranks count through them in order

    @staticmethod
    def of(gang: Gang, specs: Iterable[JobSpec]) -> Nodes:
        """`specs`: of the run's jobs."""
        groups: dict[int, int] = {}
        for spec in specs:
            if spec.replica_num == gang.replica_num:
                groups[spec.node_group_index] = groups.get(spec.node_group_index, 0) + 1
        return Nodes(gang.addresses, gang.gpus, tuple(groups[at] for at in sorted(groups)))

    def hostfile(self) -> str:
        """The nodes in the format of MPI launchers, one per line: the address and, with GPUs, a slot for each."""
        return "".join(
            f"{address} slots={gpus}\n" if gpus else f"{address}\n"
            for address, gpus in zip(self.addresses, self.gpus, strict=True)
        )

    def filled(self, command: str) -> str:
        """The command with the addresses that it refers to as `groups[i].nodes[j].IP_ADDRESS`."""
        return _ADDRESS.sub(self._address, command)

    def _address(self, found: re.Match[str]) -> str:
        group, node = int(found[1]), int(found[2])
        return self.addresses[sum(self.groups[:group]) + node] if _known(self.groups, found) else found[0]


def unknown_nodes(command: str, groups: Sequence[int]) -> list[str]:
    """The references of a command to nodes that don't exist. `groups`: the size of each group."""
    return [found[0] for found in _ADDRESS.finditer(command) if not _known(groups, found)]


def _known(groups: Sequence[int], found: re.Match[str]) -> bool:
    group, node = int(found[1]), int(found[2])
    return group < len(groups) and node < groups[group]


def one_node(job: Job, instance: Instance) -> Nodes:
    offer = job.assignment.offer if job.assignment else instance.offer
    return Nodes((instance.internal_ip or LOOPBACK,), (len(offer.instance.resources.gpus),))


def fabric_env(fast: Interconnect, rank: int, nodes: Nodes) -> dict[str, str]:
    """The variables with which a node uses the fast network. The user's own `env` may override them."""
    about = {fast.rank_variable: str(rank), fast.addresses_variable: ",".join(nodes.addresses)}
    return {**fast.env, **{name: value for name, value in about.items() if name}}


def task_env(job: Job, spec: JobSpec, nodes: Nodes) -> dict[str, str]:
    """The variables about the job and its nodes. The user's own `env` may override them."""
    own = {} if spec.service_port is None else {"DSTACK_SERVICE_PORT": str(spec.service_port)}
    return {
        **own,
        "DSTACK_RUN_ID": job.run_id,
        "DSTACK_RUN_NAME": job.run_name,
        "DSTACK_JOB_ID": job.id,
        "DSTACK_REPO_ID": spec.repo_id,
        "DSTACK_NODES_NUM": str(len(nodes.addresses)),
        "DSTACK_NODE_RANK": str(spec.job_num),
        "DSTACK_NODES_IPS": "\n".join(nodes.addresses),
        "DSTACK_MASTER_NODE_IP": nodes.addresses[0],
        "DSTACK_GPUS_PER_NODE": str(nodes.gpus[spec.job_num]),
        "DSTACK_GPUS_NUM": str(sum(nodes.gpus)),
    }
