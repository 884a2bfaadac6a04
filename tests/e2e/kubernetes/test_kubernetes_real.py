"""A cluster is added, and runs are pods there: placed, pulled, run, ended and removed, by the cluster's own parts."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import pytest

from tests.backends.kubernetes.account import of_account
from tests.backends.kubernetes.fake.engine import HOST
from tests.bench.measure import submit, task
from tests.e2e.containers.under_load import NAME, Site, kill_one_of_two
from tests.e2e.hosts.network import Namespace
from tests.e2e.kubernetes.cluster import IMAGE, REACHED_BY_PODS, add_cluster, cluster_beside
from tests.harness.carriers import carrier
from tests.harness.debian import NotHere
from tests.harness.docker import DockerEngine, bring
from tests.harness.images import GATEWAY, applets_image, gateway_image
from tests.harness.server import PATIENCE, Server, until
from tests.runtime.live import log_of, logs_of, wait_for

pytestmark = pytest.mark.slow

CLUSTER = "type: fleet\nname: pods\nplacement: cluster\nnodes: 0..9\nbackends: [kubernetes]\n"
SMALL = {"cpu": "1..", "memory": "0.1GB..", "disk": None}
T = TypeVar("T")


@pytest.fixture(scope="module")
def place(docker_engine: DockerEngine) -> Namespace:
    try:
        carrier()
    except NotHere as problem:
        pytest.skip(str(problem))
    assert applets_image().name == IMAGE
    bring(docker_engine, applets_image())
    return Namespace(docker_engine.folder.name)


@pytest.fixture(scope="module")
def kubeconfig(
    docker_engine: DockerEngine, place: Namespace, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Any]]:
    """An administrator's, of a cluster with one node. The server has no more than the smallest role."""
    with cluster_beside(docker_engine, place, tmp_path_factory.mktemp("cluster")) as found:
        yield found


@pytest.fixture(scope="module")
def server(place: Namespace, kubeconfig: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    home = tmp_path_factory.mktemp("kubernetes") / "home"
    program = "tests.e2e.kubernetes.plane"
    one = Server(home, env=REACHED_BY_PODS, network=place.path, opener=place.opener(), program=program)
    home.mkdir()
    try:
        one.start()
        add_cluster(one, of_account(kubeconfig), most=4, gateways={"image": GATEWAY})
        yield one
    finally:
        one.close()


Listed = Callable[[], dict[str, list[dict[str, Any]]]]


@pytest.fixture
def listed(kubeconfig: dict[str, Any], place: Namespace) -> Listed:
    """What the API server lists, pods, secrets and services."""

    def ask(core: Any) -> dict[str, list[dict[str, Any]]]:
        lists = {
            "pods": core.list_pod_for_all_namespaces,
            "secrets": core.list_secret_for_all_namespaces,
            "services": core.list_service_for_all_namespaces,
        }
        return {name: json.loads(each(_preload_content=False).data)["items"] for name, each in lists.items()}

    return lambda: asked(place, kubeconfig, ask)


def asked(place: Namespace, kubeconfig: dict[str, Any], question: Callable[[Any], T]) -> T:
    """What the API server answers in its network."""

    def there() -> T:
        from kubernetes import client, config

        with config.new_client_from_config_dict(kubeconfig) as api:
            return question(client.CoreV1Api(api))

    return place.within(there)


def apply(server: Server, name: str, configuration: dict[str, Any]) -> None:
    path = server.home / f"{name}.dstack.yml"
    path.write_text(json.dumps(configuration))
    server.cli("apply", "-y", "-d", "-f", str(path))


def run(server: Server, name: str, *commands: str, **more: Any) -> None:
    submit(server, task(name, *commands, **{"image": IMAGE, "resources": SMALL, **more}))


def ended(server: Server, name: str) -> tuple[str, dict[str, Any]]:
    found = wait_for(server, name, "done", "failed", "terminated")
    return found["status"], found["latest_job_submission"]


def nothing_left(server: Server, listed: Listed) -> None:
    def left() -> list[Any]:
        fleets = server.call("/api/project/main/fleets/list", {})
        return [each for fleet in fleets for each in fleet["instances"] if each["status"] != "terminated"]

    until("the instance to be terminated", lambda: not left(), seconds=2 * PATIENCE)
    until("all to be gone", lambda: not any(listed().values()))


def test_a_task_is_a_pod_and_nothing_is_left_of_it(server: Server, listed: Listed) -> None:
    report = 'echo "$(pwd) $(id -u) <$IMAGE> <$OURS> <${DSTACK_TOKEN-}>"; echo "<${NVIDIA_VISIBLE_DEVICES-}>"'
    run(server, "work", report, env={"OURS": "said"})
    status, submission = ended(server, "work")
    assert (status, submission["exit_status"]) == ("done", 0), submission
    assert submission["job_provisioning_data"]["backend"] == "kubernetes"
    lines = [line for line in log_of(server, "work").splitlines() if line.startswith(("/", "<"))]
    assert lines == ["/work 0 <its own> <said> <>", "<void>"]
    nothing_left(server, listed)


def test_another_user_and_shared_memory_and_an_exit_status_are_the_jobs(server: Server, listed: Listed) -> None:
    run(server, "fails", "id -u", "exit 3", user="12345:54321", resources={**SMALL, "shm_size": "0.1GB"})
    status, submission = ended(server, "fails")
    assert (status, submission["exit_status"]) == ("failed", 3), submission
    assert "12345" in log_of(server, "fails").splitlines()
    nothing_left(server, listed)


def test_a_run_that_is_stopped_ends_as_its_job_ends_and_takes_its_pod_along(server: Server, listed: Listed) -> None:
    run(server, "long", "trap 'echo bye; exit 4' TERM", "echo up", "while :; do sleep 1; done")
    until("it to be up", lambda: "up" in log_of(server, "long"))

    def running() -> list[dict[str, Any]]:
        return [each for each in listed()["pods"] if each["status"].get("phase") == "Running"]

    (pod,) = until("the pod to be said to run", running)
    assert pod["metadata"]["name"].startswith("cluster-") and pod["spec"]["nodeName"] == "node-1"
    assert "DSTACK_TOKEN" in str(pod["spec"]) and "secretKeyRef" in str(pod["spec"])
    server.call("/api/project/main/runs/stop", {"runs_names": ["long"], "abort": False})
    status, submission = ended(server, "long")
    assert (status, submission["termination_reason"]) == ("terminated", "terminated_by_user")
    assert "bye" in log_of(server, "long").splitlines()
    nothing_left(server, listed)


# The first node answers each of the others once, from a file: a pipe's end may be said before what comes through it.
MEET = """
echo "$DSTACK_NODE_RANK of $DSTACK_NODES_NUM, $(echo "$DSTACK_NODES_IPS" | sort -u | grep -c .) addresses"
if [ "$DSTACK_NODE_RANK" = 0 ]; then
    echo welcome >answer
    for other in 1 2; do nc -l -p 8000 <answer; done
else
    until nc "node-0.$(hostname -d)" 8000 </dev/null | grep welcome; do sleep 0.1; done
fi
"""


def test_the_nodes_of_a_task_are_pods_that_reach_each_other(server: Server, listed: Listed) -> None:
    (server.home / "gang.dstack.yml").write_text(CLUSTER)
    server.cli("apply", "-y", "-d", "-f", str(server.home / "gang.dstack.yml"))
    run(server, "gang", MEET, nodes=3, fleets=["pods"], resources={**SMALL, "cpu": "1"})
    found = wait_for(server, "gang", "done", "failed", "terminated")
    assert found["status"] == "done", [job["job_submissions"][-1] for job in found["jobs"]]
    logs = [log.splitlines() for log in logs_of(server, "gang")]
    assert all(f"{rank} of 3, 3 addresses" in log for rank, log in enumerate(logs)), logs
    assert [log.count("welcome") for log in logs] == [0, 1, 1]
    nothing_left(server, listed)
    spec = task("wide", "true", image=IMAGE, nodes=9, fleets=["pods"], resources={**SMALL, "cpu": "1"})
    plan = server.call("/api/project/main/runs/get_plan", {"run_spec": spec})
    assert any("node-1 (together room for " in each["lacking"] for each in plan["offers_asked"]), plan["offers_asked"]


def test_a_service_is_reached_through_a_gateway_that_is_a_pod(
    server: Server, docker_engine: DockerEngine, place: Namespace, kubeconfig: dict[str, Any], listed: Listed
) -> None:
    try:
        bring(docker_engine, gateway_image())
    except NotHere as problem:
        pytest.skip(str(problem))
    gateway = {"type": "gateway", "name": "door", "backend": "kubernetes", "region": kubeconfig["current-context"]}
    apply(server, "door", {**gateway, "domain": "example.com", "certificate": None})
    replica = {"image": IMAGE, "commands": ["echo served >index.html", "httpd -f -p 8000"], "resources": SMALL}
    service = {"type": "service", "name": "web", "gateway": "door", "auth": False, "port": 8000, "https": False}
    apply(server, "web", {**service, **replica})

    def door() -> Any:
        return server.call("/api/project/main/gateways/get", {"name": "door"})

    until("the gateway to run", lambda: door()["status"] == "running", every=0.5)
    assert door()["hostname"] == HOST, "which only the Service says"
    request = urllib.request.Request(f"http://{HOST}/", headers={"Host": "web.example.com"})

    def answer() -> str:
        try:
            with place.opener().open(request, timeout=120) as found:
                return str(found.read().decode())
        except urllib.error.HTTPError as problem:
            return f"{problem.code} {problem.read().decode()}"
        except OSError as problem:
            return str(problem)

    until("the service to answer", lambda: answer() == "served\n", every=0.2)
    server.call("/api/project/main/runs/stop", {"runs_names": ["web"], "abort": False})
    ended(server, "web")
    server.call("/api/project/main/gateways/delete", {"names": ["door"]})
    until("the gateway to be gone", lambda: server.call("/api/project/main/gateways/list", {}) == [], every=0.5)
    nothing_left(server, listed)


def test_a_service_in_pods_loses_no_request_when_one_is_evicted(
    server: Server, place: Namespace, kubeconfig: dict[str, Any], listed: Listed
) -> None:
    def evict(address: str) -> None:
        def ask(core: Any) -> None:
            (pod,) = (each for each in core.list_pod_for_all_namespaces().items if each.status.pod_ip == address)
            name, namespace = pod.metadata.name, pod.metadata.namespace
            core.create_namespaced_pod_eviction(name, namespace, {"metadata": {"name": name}})

        asked(place, kubeconfig, ask)

    site = Site(server, image=IMAGE, resources={**SMALL, "cpu": "1"})
    site.apply("1", 2)
    site.replicas("1", 2)
    with site.constant_requests(callers=1):
        victim = kill_one_of_two(site, evict)
    assert {status for status, _ in site.answers} == {200}
    assert victim not in site.replicas("1", 2), "`retry` has started another pod"
    server.call("/api/project/main/runs/stop", {"runs_names": [NAME], "abort": False})
    ended(server, NAME)
    nothing_left(server, listed)


def test_what_no_node_has_is_said_in_the_plan(server: Server) -> None:
    spec = task("large", "true", image=IMAGE, resources={**SMALL, "cpu": "64.."})
    plan = server.call("/api/project/main/runs/get_plan", {"run_spec": spec})
    assert plan["job_plans"][0]["offers"] == []
    (asked,) = plan["offers_asked"]
    assert asked["request"].startswith("cpu=64.. ") and "engine: node-1 (only 4 CPUs)" in asked["lacking"]
