"""`server/config.yml`: applied as a whole when a server starts, or the server doesn't start; and again whenever it
changes, for the projects and backends in it. A change that can't be applied is logged, and what was applied last stays.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from pathlib import Path

from chalicelib.configuration.server_spec import ServerConfig
from chalicelib.domain.tenants import User
from chalicelib.errors import DstackError, Invalid, Refused
from chalicelib.runtime.settings import ServerSettings
from chalicelib.usecases.context import Plane

log = logging.getLogger(__name__)

NAME = "config.yml"  # in the data folder


def declared(settings: ServerSettings, types: Collection[str] | None = None) -> ServerConfig:
    """The contents of the file; empty if there is none. Raises Invalid with every problem and refusal."""
    nothing = ServerConfig(projects=())
    if settings.server_config_disabled:
        return nothing
    path = _path(settings)
    raw = _content(path, named=settings.server_config is not None)
    if raw is None:
        return nothing
    from chalicelib.backends.registry import built
    from chalicelib.configuration.server import parse_server_bytes
    from chalicelib.usecases.operator.server_config import refusals

    file = parse_server_bytes(raw, filename=str(path))
    known = built() if types is None else types
    if problems := refusals(file, known, settings.fake_cloud_name if settings.fake_cloud else None):
        raise Invalid(problems)
    return file.config


def _path(settings: ServerSettings) -> Path:
    return settings.server_config or settings.data_dir / NAME


class ServerFile:
    """The file of a running server. `check_file` is called periodically, and does nothing while the file is
    unchanged."""

    def __init__(
        self,
        settings: ServerSettings,
        plane: Plane,
        admin: User,
        config: ServerConfig,
        follow: Callable[[ServerConfig], None] = lambda config: None,
    ) -> None:
        """`config`: the configuration at the start. `follow`: called with each configuration whose webhooks and rules
        apply from now on."""
        self._settings, self._plane, self._admin, self._config = settings, plane, admin, config
        self._follow = follow
        self._last_mark = self._mark()
        self._unapplied: tuple[str, ...] = ()  # problems that were logged

    def start(self) -> None:
        if not self._settings.server_config_disabled:
            self._apply(self._config)
            self._follow(self._config)

    def check_file(self) -> None:
        if self._settings.server_config_disabled:
            return
        mark = self._mark()
        if mark != self._last_mark:
            self._changed(mark)
            self._last_mark = mark
        elif self._unapplied:
            self._apply(self._config)  # the resources that were in use may be gone

    def _changed(self, mark: object) -> None:
        if mark is None:
            log.error("%s is gone; what it configured stays as it was", _path(self._settings))
            return
        try:
            config = declared(self._settings, self._plane.providers.types)
        except DstackError as error:
            log.error("%s has changed and can't be used, so nothing changes here: %s", _path(self._settings), error)
            return
        fixed = ("encryption", "default_permissions", "sign_on", "workloads", "registries", "plugins")
        if any(getattr(config, name) != getattr(self._config, name) for name in fixed):
            log.warning(
                "keys, permissions, registries, and who may sign on in %s take effect at the next start",
                _path(self._settings),
            )
        self._apply(config)
        self._follow(config)
        self._config = config
        log.info("%s has changed and is applied", _path(self._settings))

    def _apply(self, config: ServerConfig) -> None:
        from chalicelib.usecases.operator.server_config import ensure_backends, ensure_projects

        ensure_projects(self._plane, self._admin, config)
        unapplied = ensure_backends(self._plane, config)
        for line in unapplied:
            if line not in self._unapplied:
                log.error("%s: %s", _path(self._settings), line)
        self._unapplied = unapplied

    def _mark(self) -> tuple[int, int, int] | None:
        """A value that changes whenever the file does; None if there is no file."""
        try:
            found = _path(self._settings).stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino


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
