"""`server/config.yml`, read when a server starts: applied as a whole, or the server doesn't start."""

from __future__ import annotations

from pathlib import Path

from chalicelib.configuration.server_spec import ServerConfig
from chalicelib.errors import Invalid, Refused
from chalicelib.runtime.settings import ServerSettings

NAME = "config.yml"  # in the data folder


def declared(settings: ServerSettings) -> ServerConfig:
    """The contents of the file; empty if there is none. Raises Invalid with every problem and refusal."""
    nothing = ServerConfig(projects=())
    if settings.server_config_disabled:
        return nothing
    path = settings.server_config or settings.data_dir / NAME
    raw = _content(path, named=settings.server_config is not None)
    if raw is None:
        return nothing
    from chalicelib.backends.registry import built
    from chalicelib.configuration.server import parse_server_bytes
    from chalicelib.usecases.server_config import refusals

    file = parse_server_bytes(raw, filename=str(path))
    if problems := refusals(file, built(), settings.fake_cloud_name if settings.fake_cloud else None):
        raise Invalid(problems)
    return file.config


def _content(path: Path, *, named: bool) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError as error:
        if not named:
            return None
        raise Refused(
            f"There is no file {path}, named by --config or DSTACK_SERVER_CONFIG.", hint="Correct the path."
        ) from error
    except OSError as error:
        raise Refused(
            f"The server's configuration {path} can't be read: {error.strerror}.", hint="Check its permissions."
        ) from error
