"""What an image runs, from registries of every kind: fakes that say what real ones say."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Any

import orjson
import pytest

from chalicelib.backends.kit.rest import NoAnswer, RestAnswer, RestCall
from chalicelib.backends.spi import RegistryLogin
from chalicelib.errors import ContainerFailed, Throttled
from chalicelib.registries.client import DEADLINE, LISTS, Registries

LOGIN = RegistryLogin("team", "hunter2-hunter2")
BASIC = "Basic dGVhbTpodW50ZXIyLWh1bnRlcjI="
COMMAND = ("/entry.sh", "nginx", "-g", "daemon off;")


def digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def config_of(entry: Any, arguments: Any) -> bytes:
    return orjson.dumps({"architecture": "amd64", "config": {"Entrypoint": entry, "Cmd": arguments, "User": "7"}})


class Registry:
    """An image for two processors, `team/app:1`, behind the door that a test chooses."""

    def __init__(self, host: str = "https://ghcr.io") -> None:
        self.host, self.calls, self.clock = host, list[RestCall](), 0.0
        self.parts: dict[str, bytes] = {}
        arm = self.manifest(config_of(None, ["arm"]))
        linux = self.manifest(config_of(list(COMMAND[:1]), list(COMMAND[1:])))
        attested = {"digest": digest(b""), "platform": {"os": "unknown", "architecture": "unknown"}}
        manifests = [attested, self.platform("arm64", arm), self.platform("amd64", linux)]
        self.parts["1"] = orjson.dumps({"mediaType": LISTS[0], "manifests": manifests})
        self.door: Callable[[RestCall], RestAnswer | None] = lambda call: None

    def put(self, content: bytes) -> str:
        self.parts[digest(content)] = content
        return digest(content)

    def manifest(self, config: bytes) -> str:
        return self.put(orjson.dumps({"config": {"digest": self.put(config)}, "layers": []}))

    def platform(self, architecture: str, of: str) -> dict[str, Any]:
        return {"digest": of, "platform": {"os": "linux", "architecture": architecture}}

    def __call__(self, call: RestCall, deadline: float) -> RestAnswer:
        assert 0 < deadline <= DEADLINE
        self.calls.append(call)
        answer = self.door(call)
        if answer is not None:
            return answer
        assert call.origin == self.host
        found = self.parts.get(call.path.rpartition("/")[2])
        if not call.path.startswith("/v2/team/app/") or found is None:
            return failure(404, "manifest unknown")
        return RestAnswer(200, {}, found)

    def command(self, image: str = "ghcr.io/team/app:1", login: RegistryLogin | None = None, arch: str = "x86") -> Any:
        return Registries(self, lambda: self.clock).command(image, login, arch)

    def refusal(self, **more: Any) -> str:
        with pytest.raises(ContainerFailed) as problem:
            self.command(**more)
        return str(problem.value)


def failure(status: int, message: str = "", headers: Mapping[str, str] | None = None) -> RestAnswer:
    return RestAnswer(status, headers or {}, orjson.dumps({"errors": [{"code": "X", "message": message}]}))


REALM = "https://auth.example.com/token?x=1"


def tokens(registry: Registry, realm: str = REALM, secret: str = "", token: Any = "t0k") -> None:
    """Tokens for whoever comes, or only for those with this authorization."""
    challenge = f'Bearer realm="{realm}",service="ghcr.io",scope="repository:team/app:pull"'

    def door(call: RestCall) -> RestAnswer | None:
        if call.origin == "https://auth.example.com":
            assert call.path == "/token?x=1&service=ghcr.io&scope=repository%3Ateam%2Fapp%3Apull"
            if secret and call.headers.get("Authorization") != secret:
                return failure(401, "bad credentials")
            return RestAnswer(200, {}, orjson.dumps({"token": token}))
        if call.headers.get("Authorization") != "Bearer t0k":
            return failure(401, "", {"www-authenticate": challenge})
        return None

    registry.door = door


def test_the_entry_point_and_its_arguments_for_each_processor() -> None:
    registry = Registry()
    assert registry.command() == COMMAND
    assert registry.command(arch="arm") == ("arm",)
    assert registry.command(f"ghcr.io/team/app@{registry.put(registry.parts['1'])}") == COMMAND
    assert all("manifest.list.v2" in call.headers["Accept"] for call in registry.calls)


def test_an_image_for_one_processor_alone() -> None:
    registry = Registry()
    registry.parts["2"] = registry.parts[registry.manifest(config_of(["only"], None))]
    assert registry.command("ghcr.io/team/app:2") == ("only",)


def test_anybody_gets_a_token_where_one_is_needed() -> None:
    registry = Registry()
    tokens(registry)
    assert registry.command() == COMMAND
    assert [call.headers.get("Authorization") for call in registry.calls[:3]] == [None, None, "Bearer t0k"]
    assert len(registry.calls) == 5, "one token is enough"


def test_a_login_is_exchanged_for_a_token() -> None:
    registry = Registry()
    tokens(registry, secret=BASIC)
    assert registry.command(login=LOGIN) == COMMAND
    assert "refuses the login" in registry.refusal(login=RegistryLogin("team", "wrong-password"))


def test_an_image_is_looked_up_once_in_ten_minutes_for_each_login_and_processor() -> None:
    registry = Registry()
    read = Registries(registry, lambda: registry.clock).command

    def calls(login: RegistryLogin | None, architecture: str = "x86") -> int:
        before = len(registry.calls)
        read("ghcr.io/team/app:1", login, architecture)
        return len(registry.calls) - before

    assert [calls(None), calls(None), calls(LOGIN), calls(None, "arm"), calls(LOGIN)] == [3, 0, 3, 3, 0]
    assert calls(RegistryLogin("team", "another-password")) == 3
    registry.clock += 600
    assert calls(None) == 3
    registry.clock, registry.door = registry.clock + 600, lambda call: failure(503)
    for _ in range(2):
        with pytest.raises(Throttled):
            calls(None)
    registry.door = lambda call: None
    assert calls(None) == 3, "a failure isn't kept"


def test_a_registry_that_takes_the_login_itself() -> None:
    registry = Registry()
    challenge = {"www-authenticate": 'Basic realm="private"'}
    registry.door = lambda call: None if call.headers.get("Authorization") == BASIC else failure(401, "", challenge)
    assert registry.command(login=LOGIN) == COMMAND
    assert registry.refusal() == (
        "The image ghcr.io/team/app:1 doesn't exist in ghcr.io, or needs a login. For a private image, write "
        "`registry_auth`."
    )
    text = registry.refusal(login=RegistryLogin("team", "wrong-password"))
    assert text == "The registry ghcr.io refuses the login for the image ghcr.io/team/app:1."


def test_a_name_at_docker_hub() -> None:
    registry = Registry("https://registry-1.docker.io")
    assert registry.command("team/app:1") == COMMAND


def test_large_answers_may_be_elsewhere_and_get_no_login() -> None:
    registry = Registry()
    moved = {"location": "https://cdn.example.com/b?signature=a%2Fb~c"}

    def door(call: RestCall) -> RestAnswer | None:
        if call.origin == "https://cdn.example.com":
            assert "Authorization" not in call.headers and call.url == moved["location"]
            return RestAnswer(200, {}, config_of(list(COMMAND[:1]), list(COMMAND[1:])))
        if call.headers.get("Authorization") != BASIC:
            return failure(401, "", {"www-authenticate": "Basic"})
        return RestAnswer(307, moved) if "/blobs/" in call.path else None

    registry.door = door
    assert registry.command(login=LOGIN) == COMMAND


@pytest.mark.parametrize(
    ("image", "words"),
    [
        ("ghcr.io/team/app:other", "The image ghcr.io/team/app:other doesn't exist in ghcr.io."),
        ("ghcr.io/team/../app", "isn't the name of an image"),
        ("ghcr.io/Team/app", "isn't the name of an image"),
        ("[:::::]/a", "isn't the name of an image"),
        ("ghcr.io:99999/a", "isn't the name of an image"),
    ],
)
def test_an_image_that_doesnt_exist(image: str, words: str) -> None:
    assert words in Registry().refusal(image=image)


def test_an_image_that_isnt_made_for_the_processor() -> None:
    registry = Registry()
    manifests = [registry.platform("s390x", digest(b"")), registry.platform("amd64", digest(b""))]
    registry.parts["1"] = orjson.dumps({"manifests": manifests})
    text = registry.refusal(arch="arm")
    assert text == "The image ghcr.io/team/app:1 isn't made for linux/arm64, only for linux/amd64, linux/s390x."


def test_an_image_that_runs_nothing_by_itself() -> None:
    registry = Registry()
    registry.parts["1"] = registry.parts[registry.manifest(config_of(None, []))]
    assert "has neither an entry point nor a command. Write `commands`." in registry.refusal()


@pytest.mark.parametrize(
    "answer",
    [
        RestAnswer(200, {}, b"<html>"),
        RestAnswer(200, {}, b"[]"),
        RestAnswer(200, {}, b'{"schemaVersion": 1, "fsLayers": []}'),
        RestAnswer(200, {}, b'{"config": {"digest": "../../secret"}}'),
        RestAnswer(302, {"location": "/v2/again"}),
        RestAnswer(302, {"location": "http://169.254.169.254/"}),
        RestAnswer(302, {}),
        RestAnswer(302, {"location": "https://[x/"}),
        failure(401, "", {"www-authenticate": 'Bearer realm="https://[x/"'}),
        RestAnswer(200, {}, b'{"manifests": [1]}'),
        RestAnswer(200, {}, b'{"manifests": 1}'),
        RestAnswer(200, {}, b'{"manifests": [{"platform": "x"}]}'),
        failure(418, "no"),
    ],
    ids=[
        "html",
        "a list",
        "an old form",
        "a path",
        "a circle",
        "elsewhere",
        "nowhere",
        "no address",
        "no realm",
        "numbers",
        "a number",
        "a platform",
        "no",
    ],
)
def test_a_registry_that_says_nonsense(answer: RestAnswer) -> None:
    registry = Registry()
    registry.door = lambda call: answer
    assert "Write `commands` or the `entrypoint`, and it isn't looked up." in registry.refusal()
    assert all(call.origin == registry.host for call in registry.calls)


@pytest.mark.parametrize(
    ("config", "text"),
    [
        ({"config": []}, "neither an entry point"),
        ({"config": [1]}, "isn't one of a registry"),
        ({"config": {"Cmd": [1]}}, "isn't one of a registry"),
        ({"config": {"Cmd": "sh"}}, "isn't one of a registry"),
        ({"config": {"Cmd": ["a\0b"]}}, "NUL"),
        ({"config": {"Cmd": ["a" * 60_000, "b" * 6_000]}}, "more than 64 KiB"),
    ],
)
def test_a_command_that_cant_be_run(config: Any, text: str) -> None:
    registry = Registry()
    registry.parts["1"] = registry.parts[registry.manifest(orjson.dumps(config))]
    assert text in registry.refusal()


def test_what_was_changed_on_the_way_isnt_believed() -> None:
    registry = Registry()
    for name in list(registry.parts):
        if name != "1":
            registry.parts[name] += b" "
    assert "the digest of a part is wrong" in registry.refusal()


@pytest.mark.parametrize("realm", ["http://auth.example.com/token", "file:///etc/passwd", "", "http://127.0.0.1:80/"])
def test_a_login_goes_to_no_address_without_tls(realm: str) -> None:
    registry = Registry()
    tokens(registry, realm=realm)
    assert "leads to an address that isn't https" in registry.refusal(login=LOGIN)
    assert len(registry.calls) == 1


@pytest.mark.parametrize("token", [None, 7, "", "a\r\nb"])
def test_a_token_that_is_none(token: Any) -> None:
    registry = Registry()
    tokens(registry, token=token)
    assert "gives out no token" in registry.refusal()


@pytest.mark.parametrize(("status", "message"), [(429, "toomanyrequests"), (503, ""), (500, "hunter2-hunter2 failed")])
def test_what_may_pass_is_worth_another_try(status: int, message: str) -> None:
    registry = Registry()
    registry.door = lambda call: failure(status, message)
    with pytest.raises(Throttled) as problem:
        registry.command(login=LOGIN)
    assert f"ghcr.io answers {status}" in str(problem.value) and "hunter2" not in str(problem.value)


def test_a_registry_that_cant_be_reached_is_named_and_no_signed_address_is_shown() -> None:
    registry = Registry()

    def door(call: RestCall) -> RestAnswer:
        raise NoAnswer("ConnectTimeoutError: https://ghcr.io/v2?signature=secret")

    registry.door = door
    with pytest.raises(ContainerFailed) as problem:
        registry.command()
    text = str(problem.value)
    assert len(registry.calls) == 2
    assert "ghcr.io can't be reached (ConnectTimeoutError)" in text and "secret" not in text


def test_a_lost_answer_is_asked_for_once_more() -> None:
    registry = Registry()
    failures = [NoAnswer("ReadTimeoutError: lost")]

    def door(call: RestCall) -> None:
        if failures:
            raise failures.pop()

    registry.door = door
    assert registry.command()


def test_all_calls_together_have_one_deadline() -> None:
    registry = Registry()

    def door(call: RestCall) -> None:
        registry.clock += DEADLINE / 2

    registry.door = door
    with pytest.raises(ContainerFailed, match=r"ghcr.io can't be reached \(it takes too long\)"):
        registry.command()
    assert len(registry.calls) == 2
