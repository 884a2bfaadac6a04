"""Settings from variables and flags: what makes no sense is named."""

from __future__ import annotations

import pytest

from chalicelib.errors import Invalid
from chalicelib.runtime.settings import ServerSettings, server_settings


def test_nothing_given_is_the_default() -> None:
    assert server_settings({}) == ServerSettings().resolved()


def test_an_empty_variable_is_one_that_isnt_set() -> None:
    """An empty host would listen everywhere."""
    assert server_settings({"DSTACK_SERVER_HOST": "", "DSTACK_SERVER_PORT": ""}, host="") == server_settings({})


def test_a_flag_goes_before_a_variable() -> None:
    found = server_settings({"DSTACK_SERVER_PORT": "4000", "DSTACK_SERVER_HOST": "::1"}, port=0)
    assert (found.port, found.host) == (0, "::1")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("DSTACK_SERVER_PORT", "abc"),
        ("DSTACK_SERVER_PORT", "65536"),
        ("DSTACK_SERVER_PORT", "-1"),
        ("DSTACK_SERVER_PORT", "²"),
        ("DSTACK_SERVER_PORT", "9" * 5000),
        ("DSTACK_SERVER_CODE_UPLOAD_LIMIT", "2 MB"),
        ("DSTACK_SERVER_LOG_LEVEL", "loud"),
        ("DSTACK_AGENT_RUNTIME", "podman"),
        ("DSTACK_SERVER_LOCAL_FLEET", "perhaps"),
        ("DSTACK_SERVER_LOCAL_BLOCKS", "two"),
        ("DSTACK_SERVER_FAKE_CLOUD", "aws"),
    ],
)
def test_a_variable_that_makes_no_sense_is_named(name: str, value: str) -> None:
    with pytest.raises(Invalid, match=f"{name} is .*Set it as in {name}="):
        server_settings({name: value})


@pytest.mark.parametrize("field", ["local_fleet", "fake_cloud", "stop_jobs", "enter_project"])
def test_a_switch(field: str) -> None:
    name = f"DSTACK_SERVER_{field.upper()}"
    for word, value in (("on", True), ("TRUE", True), ("1", True), ("off", False), ("0", False), ("no", False)):
        assert getattr(server_settings({name: word}), field) is value
    assert getattr(server_settings({name: "on"}, **{field: False}), field) is False  # the flag wins


@pytest.mark.parametrize("blocks", ["", "auto", "1", "16"])
def test_blocks(blocks: str) -> None:
    assert server_settings({}, local_blocks=blocks).local_blocks == (blocks or "1")


@pytest.mark.parametrize("blocks", ["0", "-1", "two", "99999", "1.5"])
def test_blocks_that_make_no_sense(blocks: str) -> None:
    with pytest.raises(Invalid, match="--local-blocks"):
        server_settings({}, local_blocks=blocks)
