"""`dstack backend`: what it sends, what it prints, and that it shows no key."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Dstack
from tests.cli.plane import Plane

KEYS = {"type": "access_key", "access_key": "AKIA", "secret_key": "hush"}
HIDDEN = {"type": "access_key", "access_key": "(hidden)", "secret_key": "(hidden)"}
WITHOUT_IT = {"/backends/list": [], "/backends/create": None, "/backends/create_yaml": None}
WITH_IT = {
    "/backends/list": [{"name": "aws", "source": "api", "config": {"type": "aws"}, "offers_taken_at": None}],
    "/backends/aws/config_info": {"type": "aws", "regions": ["eu-west-1"], "creds": HIDDEN},
    "/backends/update": None,
    "/backends/update_yaml": None,
    "/backends/delete": None,
}


def test_a_backend_is_added_without_showing_its_key(dstack: Dstack, plane: Plane) -> None:
    plane.answers |= WITHOUT_IT
    ended = dstack("backend", "add", "aws", "--access-key", "AKIA", "-r", "eu-west-1", answers="hush\n")
    assert ended.code == 0 and ended.out == "Backend aws is added.\n" and "hush" not in ended.out + ended.err
    assert dstack("backend", "add", "aws", "--access-key", "AKIA", "--secret-key", "hush").code == 0
    assert dstack("backend", "add", "aws", "--default-creds").code == 0
    own = {"type": "default"}
    assert plane.bodies("/backends/create") == [
        {"type": "aws", "creds": KEYS, "regions": ["eu-west-1"]},
        {"type": "aws", "creds": KEYS},
        {"type": "aws", "creds": own},
    ]


def test_a_backend_keeps_what_a_change_does_not_name(dstack: Dstack, plane: Plane) -> None:
    plane.answers |= WITH_IT
    command = ("backend", "add", "aws", "--access-key", "AKIA", "--secret-key", "-")
    assert dstack(*command, "-y", answers="hush\n").out == "Backend aws is changed.\n"
    assert dstack("backend", "add", "aws", "-r", "us-east-1", "-y").code == 0
    bodies = plane.bodies("/backends/update")
    assert bodies[-2:] == [
        {"type": "aws", "regions": ["eu-west-1"], "creds": KEYS},
        {"type": "aws", "regions": ["us-east-1"], "creds": HIDDEN},
    ]
    assert "Nothing was changed." in dstack("backend", "add", "aws", "--default-creds", answers="n\n").out
    assert plane.bodies("/backends/update") == bodies


def test_a_backend_comes_from_a_file(dstack: Dstack, plane: Plane) -> None:
    path = dstack.terminal.cwd / "backend.yml"
    text = "type: aws\ncreds: {type: access_key, access_key: AKIA, secret_key: hush}\n"
    path.write_text(text)
    plane.answers |= WITHOUT_IT
    assert dstack("backend", "add", "-f", "backend.yml").out == "Backend aws is added.\n"
    plane.answers |= WITH_IT
    assert dstack("backend", "add", "-f", "backend.yml", "-y").out == "Backend aws is changed.\n"
    sent = {"config_yaml": text}
    assert (plane.bodies("/backends/create_yaml"), plane.bodies("/backends/update_yaml")) == ([sent], [sent])
    path.write_text("type: aws\nregion: eu\ncreds: hush\n")
    error = dstack("backend", "add", "-f", "backend.yml").err
    assert "backend.yml:2:1" in error and "did you mean `regions`?" in error and "hush" not in error
    assert "can't be read" in dstack("backend", "add", "-f", "none.yml").err


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ("", "either a backend or -f FILE"),
        ("aws -f backend.yml", "either a backend or -f FILE"),
        ("-f backend.yml --default-creds", "has all settings"),
        ("aws --default-creds --access-key A", "contradict"),
        ("aws --secret-key s", "needs the key's id"),
        ("kubernetes", "add it with `dstack backend add -f FILE`"),
        ("aws", "Add --access-key ID, which asks for the secret key, or --default-creds"),
        ("aws --access-key A", "nothing on standard input"),
    ],
)
def test_a_backend_that_is_not_said_whole_is_refused(dstack: Dstack, plane: Plane, args: str, message: str) -> None:
    plane.answers |= WITHOUT_IT
    ended = dstack("backend", "add", *args.split(), answers="")
    assert ended.code and message in " ".join(ended.err.replace("│", " ").split())
    assert not any("create" in one.path for one in plane.requests)


def test_backends_are_checked_listed_and_deleted(dstack: Dstack, plane: Plane) -> None:
    plane.answers |= WITH_IT | {"/backends/aws/check": None}
    assert dstack("backend").out == dstack("backend", "list").out
    assert dstack("backend", "check").out == "aws: works\n"
    denied = {"detail": [{"msg": "the account lacks ec2:RunInstances in eu-west-1", "code": "error"}]}
    plane.answers["/backends/aws/check"] = (400, denied)
    ended = dstack("backend", "check", "aws")
    assert ended.code == 1 and ended.out == "aws: the account lacks ec2:RunInstances in eu-west-1\n"
    assert "Nothing was deleted." in dstack("backend", "delete", "aws", answers="n\n").out
    assert dstack("backend", "delete", "aws", "-y").out == "Backend aws is deleted.\n"
    assert plane.bodies("/backends/delete") == [{"backends_names": ["aws"]}]
    plane.answers["/backends/list"] = []
    assert "No backends yet" in dstack("backend").err and "No backends yet" in dstack("backend", "check").err
