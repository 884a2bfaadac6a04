"""People sign on with accounts at a real OpenID Connect provider, from our command line and the genuine client."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urljoin, urlsplit
from urllib.request import Request, urlopen

import pytest
import yaml

from tests.e2e.peer import VENV
from tests.e2e.sign_on.browser import sign_on
from tests.harness.server import PATIENCE, ROOT, HttpError, Server
from tests.scenarios.guides import SIGN_ON

HERE = ROOT / "tests" / "e2e" / "sign_on"
PROVIDER = ROOT / ".venvs" / "provider"
BROWSER = f"{sys.executable} {HERE / 'browser.py'} %s"


def guides(issuer: str) -> dict[str, Any]:
    """What the guide shows, with this provider."""
    (example,) = re.findall(r"```yaml config.yml\n(.*?)```", SIGN_ON.read_text(), re.DOTALL)
    (found,) = yaml.safe_load(example)["sign_on"]
    return {**found, "name": "guide", "issuer": issuer}


def config(issuer: str) -> dict[str, Any]:
    native = {"issuer": issuer, "client_id": "dstack"}
    web = {"issuer": issuer, "client_id": "web", "client_secret": "web-secret"}
    groups = [{"name": "ops", "admin": True}, {"name": "gpu", "projects": [{"name": "main", "role": "manager"}]}]
    return {
        "projects": [{"name": "main"}],
        "sign_on": [
            {"name": "corp", **native, "groups": groups},
            {"name": "strict", **native, "email_domains": ["example.com"]},
            {"name": "closed", **native, "groups": groups, "only_groups": True},
            {"name": "web", **web, "redirect_url": "https://console.example.com/auth/web/callback"},
            guides(issuer),
            {"name": "elsewhere", "issuer": issuer.replace("127.0.0.1", "localhost"), "client_id": "dstack"},
        ],
    }


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    if not (PROVIDER / ".installed").exists():
        pytest.skip("the provider of accounts isn't installed here; `make test` installs it into .venvs/provider")
    program = (HERE / "provider.mjs").read_bytes()
    provider = subprocess.Popen(
        ["node", "--input-type=module", "-"],
        cwd=PROVIDER,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert provider.stdin is not None and provider.stdout is not None
    home = tmp_path_factory.mktemp("sign-on")
    running = Server(home, flags=("--no-local-fleet",))
    try:
        provider.stdin.write(program)
        provider.stdin.close()
        issuer = f"http://127.0.0.1:{int(provider.stdout.readline())}"
        (home / "server").mkdir(mode=0o700)
        (home / "server" / "config.yml").write_text(json.dumps(config(issuer)))
        yield running.start()
    finally:
        running.close()
        provider.kill()
        provider.stdout.close()
        provider.wait()


@dataclass
class Person:
    server: Server
    home: Path

    def run(self, login: str, *command: str) -> str:
        """stdout and stderr of a command line, whose browser signs on as that login."""
        env = {**self.server.environment(), "HOME": str(self.home), "BROWSER": BROWSER, "SIGN_ON_AS": login}
        env |= {"PYTHONPATH": str(ROOT)} if command[0] == sys.executable else {}
        done = subprocess.run(
            command,
            cwd=self.home,
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=PATIENCE,
        )
        return f"{done.stdout}\n[{done.returncode}]"

    def dstack(self, login: str, *args: str) -> str:
        return self.run(login, sys.executable, "-m", "cli.main", *args)


@pytest.fixture
def person(server: Server, tmp_path: Path) -> Person:
    return Person(server, tmp_path)


def begun(server: Server, provider: str, login: str) -> dict[str, str]:
    """What the provider sends the browser back with."""
    body = {"local_port": 10_999, "base_url": None}
    address = server.call(f"/api/auth/{provider}/authorize", body)["authorization_url"]
    end = "https://console" if provider == "web" else "http://localhost"
    given = parse_qs(urlsplit(sign_on(address, login, end)).query)
    return {"code": given["code"][0], "state": given["state"][0]}


def entered(server: Server, provider: str, login: str) -> Any:
    return server.call(f"/api/auth/{provider}/callback", begun(server, provider, login))


def refused(server: Server, provider: str, login: str) -> str:
    with pytest.raises(HttpError) as refusal:
        entered(server, provider, login)
    assert refusal.value.status == 400
    return refusal.value.body


def roles(server: Server, name: str) -> tuple[str, str | None]:
    """Global, and in the project."""
    user = server.call("/api/users/get_user", {"username": name})
    members = server.call("/api/projects/main/get")["members"]
    return user["global_role"], next((m["project_role"] for m in members if m["user"]["username"] == name), None)


# --- the way ----------------------------------------------------------------------------------------------------------


def test_somebody_signs_on_in_a_browser_and_works(server: Server, person: Person) -> None:
    output = person.dstack("ann+gpu", "login", "--url", server.url, "-p", "corp")
    assert "You are ann" in output and "Projects: main. The default is main." in output and output.endswith("[0]")
    assert "No runs" in person.dstack("", "ps") or "[0]" in person.dstack("", "ps")
    server.call("/api/users/refresh_token", {"username": "ann"})
    assert "[1]" in person.dstack("", "ps")


def test_the_genuine_client_signs_on(server: Server, person: Person) -> None:
    program = VENV / "bin" / "dstack"
    if not program.exists():
        pytest.skip("the genuine client isn't installed here; `make test` installs it into .venvs/peer")
    output = person.run("eve+gpu", str(program), "login", "--url", server.url, "-p", "corp", "-y")
    assert output.endswith("[0]"), output
    assert person.run("", str(program), "ps").endswith("[0]")


def test_somebody_signs_on_with_a_code_on_another_machine(server: Server, person: Person) -> None:
    begun = server.call("/api/auth/corp/device")
    assert server.call("/api/auth/corp/device_token", {"state": begun["state"]}) is None
    sign_on(begun["verification_uri_complete"], "bob+gpu")
    token = server.call("/api/auth/corp/device_token", {"state": begun["state"]})["creds"]["token"]
    assert server.call("/api/users/get_my_user", token=token)["username"] == "bob"


def test_a_console_passes_on_what_was_meant_for_a_command_line(server: Server) -> None:
    given = begun(server, "web", "carl")
    onward = server.call("/api/auth/get_next_redirect", given)["redirect_url"]
    assert onward.startswith("http://localhost:10999/auth/callback?") and parse_qs(urlsplit(onward).query)["code"]
    assert server.call("/api/auth/web/callback", given)["username"] == "carl"


def test_a_browser_that_signs_on_comes_back_to_the_console_and_is_known_there(server: Server) -> None:
    """What the console's page does: it begins, is sent back with what only the page sees, and finishes."""
    console = server.url.replace("127.0.0.1", "localhost")
    begin = Request(f"{console}/api/auth/corp/authorize", json.dumps({"base_url": console}).encode())
    with urlopen(begin, timeout=PATIENCE) as begun:
        proof, address = begun.headers["Set-Cookie"].partition(";")[0], json.load(begun)["authorization_url"]
    back = sign_on(address, "kim", f"{console}/auth/corp/callback")
    connection = HTTPConnection(urlsplit(console).netloc, timeout=PATIENCE)
    connection.request("GET", back.removeprefix(console))
    location = urljoin(back, str(connection.getresponse().headers["Location"]))
    assert location.startswith(f"{console}/#sign-on=corp&")
    given = {name: values[0] for name, values in parse_qs(urlsplit(location).fragment).items() if name != "sign-on"}
    assert server.call("/api/auth/get_next_redirect", given)["redirect_url"] is None
    for cookie, status in (("dstack-sign-on=another", 400), (proof, 200)):
        headers = {"Cookie": cookie, "Content-Type": "application/json"}
        connection = HTTPConnection(urlsplit(console).netloc, timeout=PATIENCE)
        connection.request("POST", "/api/auth/corp/callback", json.dumps(given), headers)
        reply = connection.getresponse()
        assert reply.status == status
    entered = json.load(reply)
    assert entered["username"] == "kim"
    assert server.call("/api/users/get_my_user", token=entered["creds"]["token"])["username"] == "kim"


# --- who may, and what they become ------------------------------------------------------------------------------------


def test_groups_give_roles_and_take_them_back_with_the_next_sign_on(server: Server) -> None:
    entered(server, "corp", "dora+gpu+ops")
    assert roles(server, "dora") == ("admin", "manager")
    entered(server, "corp", "dora+others")
    assert roles(server, "dora") == ("user", None)


def test_a_role_that_a_person_gave_stays(server: Server) -> None:
    entered(server, "corp", "fred+gpu")
    members = {"members": [{"username": "fred", "project_role": "user"}]}
    server.call("/api/projects/main/add_members", members)
    entered(server, "corp", "fred")
    assert roles(server, "fred") == ("user", "user")


def test_a_taken_name_gets_a_number_and_an_account_is_always_the_same_user(server: Server) -> None:
    server.call("/api/users/create", {"username": "gina", "global_role": "user"})
    assert [entered(server, "corp", "gina")["username"] for _ in range(2)] == ["gina-2", "gina-2"]


def test_who_may_not_sign_on_is_told_why(server: Server) -> None:
    assert "verified" in refused(server, "strict", "hugo?")
    assert "none of the groups" in refused(server, "closed", "hugo+others")
    entered(server, "corp", "ivy")
    server.call("/api/users/update", {"username": "ivy", "global_role": "user", "active": False})
    assert "deactivated" in refused(server, "corp", "ivy")


def test_the_guides_groups_give_what_it_says(server: Server) -> None:
    entered(server, "guide", "lena+gpu-admins")
    entered(server, "guide", "mona+research")
    assert (roles(server, "lena"), roles(server, "mona")) == (("admin", None), ("user", "manager"))


# --- what isn't right -------------------------------------------------------------------------------------------------


def test_a_code_works_once_and_only_with_its_own_state(server: Server) -> None:
    given, other = begun(server, "corp", "jack"), begun(server, "corp", "kate")
    for wrong in ({**given, "state": other["state"]}, {**given, "state": "v1.bm9uc2Vuc2U="}):
        with pytest.raises(HttpError, match="sign"):
            server.call("/api/auth/corp/callback", wrong)
    server.call("/api/auth/corp/callback", other)
    with pytest.raises(HttpError, match="didn't let you sign on"):
        server.call("/api/auth/corp/callback", other)


def test_a_provider_that_calls_itself_otherwise_is_refused(server: Server) -> None:
    with pytest.raises(HttpError, match="calls itself"):
        server.call("/api/auth/elsewhere/authorize", {"local_port": 10_999})
    with pytest.raises(HttpError, match="Providers here: corp"):
        server.call("/api/auth/nobody/authorize", {"local_port": 10_999})
