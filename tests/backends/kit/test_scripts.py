"""The start script in each form, run by a shell as the provider's machine would."""

from __future__ import annotations

import base64
import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from chalicelib.backends.kit.errors import cleaned
from chalicelib.backends.kit.scripts import (
    PLACE,
    SSH_COMMAND,
    check_gateway,
    cloud_config,
    secrets_of,
    user_data,
)
from chalicelib.backends.spi import Container, RegistryLogin
from chalicelib.domain.container_script import settings
from chalicelib.errors import Unfit
from tests.backends.conformance.requests import BOOT_TOKEN, request_for
from tests.backends.kit.backend import CirrusBackend
from tests.backends.kit.cirrus import KEY, SECRET, Cirrus

SCRIPT = "#!/bin/sh\nset -eu\nprintf '%s' \"ü 'quoted' \\n $((6 * 7))\" > {file}\n"
REQUEST = request_for(CirrusBackend(KEY, SECRET, lambda: 0, send=Cirrus(lambda: 0).send).offers()[0])


def test_a_script_is_passed_on_as_it_is_if_it_is_short_enough() -> None:
    request = replace(REQUEST, user_data="ü" * 50)
    assert user_data(request, 100, "Example") == request.user_data
    with pytest.raises(Unfit, match=rf"boot script of {REQUEST.name} is longer than the 99 bytes that Example takes"):
        user_data(request, 99, "Example")


def test_a_gateways_machine_has_an_address_that_the_world_reaches() -> None:
    check_gateway(REQUEST, public_ips=False)
    check_gateway(replace(REQUEST, open_ports=(80,)), public_ips=True)
    with pytest.raises(Unfit, match=r"needs a public address, and the backend has `public_ips: false`"):
        check_gateway(replace(REQUEST, open_ports=(80,)), public_ips=False)


def test_secrets_are_the_script_and_its_token() -> None:
    assert secrets_of(REQUEST) == (REQUEST.user_data, BOOT_TOKEN)
    assert secrets_of(replace(REQUEST, user_data="#!/bin/sh\n")) == ("#!/bin/sh\n",)


def test_of_a_container_the_token_is_secret_and_the_registrys_password() -> None:
    container = Container("ubuntu", ("sh",), settings("http://plane", "i", BOOT_TOKEN, "0" * 64, {}))
    request = replace(REQUEST, user_data="", container=container)
    assert secrets_of(request) == (BOOT_TOKEN,)
    request = replace(request, container=replace(container, login=RegistryLogin("me", "pass-1")))
    assert secrets_of(request) == (BOOT_TOKEN, "me:pass-1", "pass-1")
    assert "pass-1" not in repr(request)
    secret = replace(container, login=RegistryLogin("robot-7", "pass-1", secret_username=True))
    assert secrets_of(replace(request, container=secret)) == (BOOT_TOKEN, "robot-7:pass-1", "pass-1", "robot-7")


def test_the_login_is_hidden_as_registries_get_it() -> None:
    container = Container("ubuntu", ("sh",), settings("http://plane", "i", BOOT_TOKEN, "0" * 64, {}))
    request = replace(REQUEST, container=replace(container, login=RegistryLogin("me", "pass-1")))
    encoded = base64.b64encode(b"me:pass-1").decode()
    assert cleaned(f"pull failed: Basic {encoded}", secrets_of(request)) == "pull failed: Basic [hidden]"


def test_cloud_init_writes_the_script_where_only_root_reads_it_and_runs_it() -> None:
    config = cloud_config("#!/bin/sh\n")
    (file,) = config["write_files"]
    assert config["runcmd"] == [file["path"]]
    assert (file["content"], file["owner"], file["permissions"]) == ("#!/bin/sh\n", "root:root", "0700")


def test_over_ssh_it_is_run_by_root_and_no_command_line_shows_it(tmp_path: Path) -> None:
    """The session ends before the script does, which goes on without it. Here the session is an ordinary user's."""
    out, go, end, place = (tmp_path / name for name in ("out", "go", "end", "start"))
    for name, text in (("id", "echo 1000"), ("sudo", 'printf %s "$1" > "$0.asked"; shift; exec "$@"')):
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    os.mkfifo(go), os.mkfifo(end)
    script = f"cat {go} > /dev/null\n{SCRIPT.format(file=out)}echo done > {end}\n"
    session = subprocess.run(
        ["/bin/sh", "-c", SSH_COMMAND.replace(PLACE, str(place))],
        input=script.encode(),
        env={"PATH": f"{tmp_path}:/usr/bin:/bin"},
        capture_output=True,
        timeout=120,
        check=True,
    )
    assert session.stdout + session.stderr == b"" and not out.exists()
    go.write_text("go")
    assert end.read_text() == "done\n"
    assert out.read_text() == "ü 'quoted' \\n 42"
    assert (tmp_path / "sudo.asked").read_text() == "-n"
    assert place.stat().st_mode & 0o777 == 0o600
