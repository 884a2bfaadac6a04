"""Which tests go to the same worker, and which start first, when the suite is spread over the cores.

Tests of one file stay together, because they share their fixtures. Files that share something expensive (an engine, an
emulator, the genuine client, the import of a provider's SDK) stay together too, so that it is started only once. Long
tests that share nothing go one by one. The longest start first, so that no core waits for the others at the end.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable

import pytest

from tests.harness import quick

TOGETHER = {
    "tests/store/test_kill_real.py": "emulator",
    "tests/store/test_dynamo_real.py": "emulator",
    "tests/store/test_s3_real.py": "emulator",
    "tests/infra/test_stateful_real.py": "emulator",
    "tests/infra/test_restore_real.py": "emulator",
    "tests/runtime/pair/test_places_s3_real.py": "emulator",
    "tests/runtime/test_backup_s3_real.py": "emulator",
    "tests/infra/test_spending_real.py": "emulator",
    "tests/infra/test_agent_address_real.py": "emulator",
    "tests/engine/test_asl_real.py": "emulator",
    "tests/scenarios/test_scenarios_real.py": "emulator",
    "tests/functions/test_books_real.py": "emulator",
    "tests/functions/test_erase_real.py": "emulator",
    "tests/functions/test_releases_real.py": "emulator",
    "tests/functions/test_uploads_real.py": "emulator",
    "tests/runtime/test_migrate_page_real.py": "emulator",
    "tests/api/v1/test_resources_real.py": "emulator",
    "tests/e2e/hosts/test_hosts_real.py": "hosts",
    "tests/e2e/hosts/test_odd_hosts_real.py": "hosts",
    "tests/e2e/onprem/test_attach_real.py": "hosts",
    "tests/e2e/onprem/test_cluster_real.py": "hosts",
    "tests/e2e/onprem/test_bastion_real.py": "hosts",
    "tests/e2e/onprem/test_gateway_real.py": "hosts",
    "tests/e2e/onprem/test_guide_real.py": "hosts",
    "tests/e2e/onprem/test_ssh_fleet_real.py": "hosts",
    "tests/e2e/onprem/test_survival_real.py": "hosts",
    "tests/e2e/onprem/test_join_real.py": "hosts",
    "tests/e2e/operate/test_systemd_real.py": "hosts",
    "tests/e2e/aws/test_deployed_real.py": "deployment",
    "tests/e2e/volumes/test_volumes_real.py": "hosts",
    "tests/e2e/volumes/test_cycles_real.py": "hosts",
    # Two engines, because the tests with one would take longer than all others take meanwhile.
    "tests/agent/runtimes/test_docker_real.py": "engine",
    "tests/agent/runtimes/test_docker_repositories_real.py": "engine",
    "tests/agent/sessions/test_container_sessions_real.py": "engine",
    "tests/agent/runtimes/test_docker_inside_real.py": "engine",
    "tests/agent/program/test_containers_real.py": "engine",
    "tests/agent/program/test_images_real.py": "engine",
    "tests/agent/sessions/test_attached_containers_real.py": "engine",
    "tests/e2e/containers/test_containers_real.py": "engine of runs",
    "tests/e2e/operate/test_container_real.py": "engine of runs",
    "tests/e2e/containers/test_markets_real.py": "engine of runs",
    "tests/agent/runtimes/test_node_ssh_containers_real.py": "engine",
    "tests/agent/replicas/test_replica_containers_real.py": "engine",
    "tests/agent/runtimes/test_docker_full_disk_real.py": "engine",
    "tests/agent/runtimes/test_docker_volumes_real.py": "engine",
    "tests/agent/volumes/test_volumes_real.py": "engine",
    "tests/agent/volumes/test_volume_crashes_real.py": "engine",
    "tests/e2e/test_volume_runs_real.py": "engine of runs",
    "tests/backends/kubernetes/test_fake_engine_real.py": "engine of runs",
    "tests/e2e/kubernetes/test_kubernetes_real.py": "engine of runs",
    "tests/e2e/test_docker_real.py": "engine of runs",
    "tests/e2e/test_genuine_volume_runs_real.py": "engine of runs",
    "tests/cli/test_peer_real.py": "genuine",
    "tests/e2e/clouds/test_genuine_real.py": "genuine",
    "tests/e2e/test_genuine_access_tokens.py": "genuine",
    "tests/e2e/test_genuine_api.py": "genuine",
    "tests/e2e/test_genuine_cli.py": "genuine",
    "tests/e2e/test_genuine_exports.py": "genuine",
    "tests/e2e/test_genuine_gateways.py": "genuine",
    "tests/e2e/test_genuine_services.py": "genuine",
    "tests/e2e/test_genuine_volumes.py": "genuine",
}
APART = ("tests/simulation/",)
CONSOLE = "tests/console/"  # one server and one browser for all of it
LONGEST = (
    "tests/wire/test_same_body_real.py",
    "tests/simulation/",
    "tests/scenarios/test_scenarios_real.py",
    "tests/e2e/hosts/",
    "tests/agent/runtimes/test_docker_real.py",
    "tests/e2e/aws/",
    "tests/examples/",
    "tests/e2e/test_gateways_real.py",
    "tests/scenarios/test_guides_real.py",
    "tests/runtime/",
    "tests/e2e/",
    "tests/console/",
    "tests/cli/test_server_real.py",
    "tests/infra/test_charges.py",
)


def group(nodeid: str) -> str:
    """The group of tests that go to one worker with this one."""
    file = nodeid.partition("::")[0]
    if file.startswith(CONSOLE) and file.endswith("_real.py"):
        return CONSOLE
    return nodeid if file.startswith(APART) else TOGETHER.get(file) or _sdk(file) or file


@functools.cache
def _sdk(file: str) -> str:
    """Whose SDK these tests import, which takes up to five seconds of CPU. Those that drive something real wait by
    themselves."""
    return "" if file.endswith("_real.py") else quick.provider(quick.ROOT / file)


def files(nodeid: str) -> list[str]:
    """This test, and the files that are in its group by name."""
    own_group = group(nodeid)
    return [nodeid, *(file for file, name in TOGETHER.items() if name == own_group)]


def waits(nodeid: str) -> bool:
    """Does its group drive something real, which takes longer than it computes?"""
    return any("_real.py" in file or file.startswith("tests/e2e/") for file in files(nodeid))


def turn(nodeid: str) -> int:
    """When its group starts: the longest first, then whatever drives something real, then the rest."""
    named = [number for number, start in enumerate(LONGEST) for file in files(nodeid) if file.startswith(start)]
    return min(named, default=len(LONGEST) + (not waits(nodeid)))


def in_turn(items: Iterable[pytest.Item]) -> list[list[pytest.Item]]:
    """The groups, in the order in which they are handed out."""
    groups: dict[str, list[pytest.Item]] = {}
    for item in items:
        groups.setdefault(group(item.nodeid), []).append(item)
    return sorted(groups.values(), key=lambda found: (turn(found[0].nodeid), -len(found)))
