"""A model from `dstack apply` to the answer: the example that runs anywhere, asked by OpenAI's own client."""

from __future__ import annotations

import os
import urllib.request
from collections.abc import Iterator

import pytest

from tests.bench.measure import wait_local_host
from tests.harness.server import PATIENCE, ROOT, Server, until
from tests.runtime.live import log_of, run_of, wait_for
from tests.serving import genuine_client as client

EXAMPLE = ROOT / "examples" / "services" / "hello-openai.dstack.yml"
OUTSIDE = ("http_proxy", "https_proxy", "no_proxy", *(name for name in os.environ if name.startswith("PIP_")))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    client.needed()
    env = {name: os.environ.get(name, "") for name in OUTSIDE}  # the example installs a package
    env["DSTACK_AGENT_RUNTIME"] = "process"
    one = Server(tmp_path_factory.mktemp("models") / "home", flags=("--local-hosts", "1"), env=env)
    one.home.mkdir()
    try:
        wait_local_host(one.start())
        given = [argument for name in OUTSIDE if env[name] for argument in ("-e", f"{name}={env[name]}")]
        output = one.cli("apply", "-y", "-d", *given, "-f", str(EXAMPLE))
        assert "/proxy/services/main/hello-openai/" in output, output
        run = wait_for(one, "hello-openai", "running", "failed", "terminated")
        assert run["status"] == "running", (run["status_message"], run.get("error"), log_of(one, "hello-openai"))
        yield one
    finally:
        one.close()


def test_it_isnt_asked_before_its_model_answers(server: Server) -> None:
    """The first request waits for the replica, however long the installation takes."""

    def answered() -> bool:
        assert run_of(server, "hello-openai")["status"] == "running", log_of(server, "hello-openai")
        return client.ask(f"{server.url}/proxy/models/main", server.token, "chat") == {"chat": "ok"}

    until("an answer", answered, seconds=600)


def test_every_call_goes_through_the_address_of_all_models(server: Server) -> None:
    calls = (*client.PLAIN, "no_such_model", "wrong_key")
    client.all_well(client.ask(f"{server.url}/proxy/models/main", server.token, *calls), *calls)


def test_every_call_goes_through_the_address_that_clients_are_told(server: Server) -> None:
    model = run_of(server, "hello-openai")["service"]["model"]
    assert (model["name"], model["type"]) == (client.MODEL, "chat")
    client.all_well(client.ask(server.url + model["base_url"], server.token, *client.PLAIN[1:]), *client.PLAIN[1:])


def test_its_tokens_are_counted(server: Server) -> None:
    def counted() -> bool:
        request = urllib.request.Request(f"{server.url}/metrics", headers={"Authorization": f"Bearer {server.token}"})
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            metrics = answer.read().decode()
        line = next(
            (each for each in metrics.splitlines() if each.startswith("dstack_service_completion_tokens_total{")), ""
        )
        return float(line.rpartition(" ")[2] or 0) > 0

    until("them to be told of", counted)
