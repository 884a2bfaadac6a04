"""Settings. The only reader of the environment, so that every knob is listed in one place."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from chalicelib.errors import Invalid
from chalicelib.usecases.context import Images, Limits

DEFAULT_PORT = 3000


@dataclass(frozen=True)
class ServerSettings:
    """How `dstack server` runs on one machine."""

    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    data_dir: Path = Path("~/.dstack/server")
    config_path: Path = Path("~/.dstack/config.yml")  # the client's, where the new project is entered
    log_level: str = "info"
    admin_token: str | None = None
    local_fleet: bool = True
    local_blocks: str = "1"  # how many jobs may share this machine: a number or `auto`
    fake_cloud: bool = False
    stop_jobs: bool = False  # on SIGTERM, end the jobs of this machine too
    agent_runtime: str = "auto"  # docker, process, or auto: docker where an engine answers
    docker_socket: Path = Path("/var/run/docker.sock")
    limits: Limits = field(default_factory=Limits)
    images: Images = field(default_factory=Images)

    def resolved(self) -> ServerSettings:
        from dataclasses import replace

        return replace(self, data_dir=Path(self.data_dir).expanduser(), config_path=Path(self.config_path).expanduser())


def server_settings(environ: Mapping[str, str] | None = None, **flags: object) -> ServerSettings:
    """Settings from `DSTACK_*` variables, overridden by the flags that were given (None: not given).

    Raises Invalid, naming the variable, for a value that makes no sense.
    """
    env = os.environ if environ is None else environ
    images = Images(
        base=env.get("DSTACK_DOCKER_BASE_IMAGE", Images.base),
        devel=env.get("DSTACK_DOCKER_DEVEL_IMAGE", Images.devel),
        python=env.get("DSTACK_DEFAULT_PYTHON", Images.python),
    )
    values: dict[str, object] = {
        "host": env.get("DSTACK_SERVER_HOST", ServerSettings.host),
        "port": _number(env, "DSTACK_SERVER_PORT", DEFAULT_PORT),
        "data_dir": Path(env.get("DSTACK_SERVER_DIR", str(ServerSettings.data_dir))),
        "log_level": env.get("DSTACK_SERVER_LOG_LEVEL", ServerSettings.log_level).lower(),
        "admin_token": env.get("DSTACK_SERVER_ADMIN_TOKEN") or None,
        "agent_runtime": env.get("DSTACK_AGENT_RUNTIME", ServerSettings.agent_runtime),
        "docker_socket": _docker_socket(env),
        "limits": Limits(upload=_number(env, "DSTACK_SERVER_CODE_UPLOAD_LIMIT", Limits.upload)),
        "images": images,
    }
    values |= {name: value for name, value in flags.items() if value is not None}
    return ServerSettings(**values).resolved()  # type: ignore[arg-type]


def _docker_socket(env: Mapping[str, str]) -> Path:
    """`DOCKER_HOST` as Docker's own client reads it, as far as it names a socket of this machine."""
    scheme, _, path = env.get("DOCKER_HOST", "").partition("://")
    return Path(path) if scheme == "unix" and path else ServerSettings.docker_socket


def _number(env: Mapping[str, str], name: str, default: int) -> int:
    text = env.get(name, "")
    if not text:
        return default
    if not text.isdigit():
        raise Invalid(f"{name} is {text!r}, which is not a number.", hint=f"Set it as in {name}={default}.")
    return int(text)
