"""The token and the script that a machine is started with."""

from __future__ import annotations

import subprocess

import pytest

from chalicelib.domain.boot_script import read_user_data, user_data
from chalicelib.engine.bootstrap import bootstrap_token


def test_token_depends_on_all_of_key_instance_and_epoch() -> None:
    tokens = {
        bootstrap_token(key, instance, epoch)
        for key in (b"a" * 32, b"b" * 32)
        for instance in ("one", "two")
        for epoch in (0, 1)
    }
    assert len(tokens) == 8
    assert bootstrap_token(b"a" * 32, "one", 0) in tokens


@pytest.mark.parametrize("url", ["http://127.0.0.1:3000", "https://x.example/a b'c", "http://[::1]:80"])
def test_script_is_read_back_as_it_was_written(url: str) -> None:
    assert read_user_data(user_data(url, "instance", "token")) == (url, "instance", "token")


def test_script_is_one_a_shell_understands() -> None:
    script = user_data("https://x.example/a b'c", "instance", "token")
    subprocess.run(["sh", "-n"], input=script, text=True, check=True)


def test_foreign_script_is_not_read() -> None:
    with pytest.raises(ValueError, match="DSTACK_TOKEN"):
        read_user_data("#!/bin/sh\nDSTACK_SERVER=x\n")
