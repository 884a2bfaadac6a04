"""A run's ports, volumes, files and repos."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Discriminator, Field, Tag, model_validator

from chalicelib.domain.specs.reading import TAG, Integer, JsonSchema, Reads, Spec, TextPattern, fault, faults, is_number

_TEXT = {"type": "string"}
_PORT = {"type": "integer", "minimum": 1, "maximum": 65535}
_PORTS = re.compile(r"(?:([0-9]{1,9}|\*):)?([0-9]{1,9})")


class PortMapping(Spec):
    """A port of the container, and the local port it is forwarded to while attached."""

    local_port: Integer | None = Field(
        default=None, description="The local port; any free one if null.", ge=1, le=65535
    )
    container_port: Integer = Field(description="The port in the container.", ge=1, le=65535)

    SHORT_FORMS: ClassVar[tuple[JsonSchema, ...]] = (
        _PORT,
        _TEXT | {"pattern": r"^(([0-9]+|\*):)?[0-9]+$", "examples": ["8080", "80:8080", "*:8080"]},
    )

    @classmethod
    def read(cls, written: Any) -> Any:
        if isinstance(written, bool) or not isinstance(written, int | str):
            return written
        local, container = _halves(written)
        return {
            "local_port": None if local == "*" else container if local is None else int(local),
            "container_port": container,
        }


def _halves(written: int | str) -> tuple[str | None, int]:
    if not (found := _PORTS.fullmatch(str(written).strip())):
        hint = 'for example `8080`, `"80:8080"` or `"*:8080"`, in quotes where there is a colon'
        raise fault("invalid-port", f"`{str(written)[:40]}` isn't a port", hint)
    return found[1], int(found[2])


def _service_port(written: Any) -> Any:
    """Only the container's port matters for a service; the local one is always shown as 80."""
    if isinstance(written, bool) or not isinstance(written, int | str):
        return written
    local, container = _halves(written)
    if local == "*":
        raise fault("invalid-port", "a service listens on one port", f"write `port: {container}`")
    return {"local_port": 80 if local is None else int(local), "container_port": container}


ServicePort = Annotated[PortMapping, Reads(_service_port)]


def absolute(path: str) -> str:
    """An absolute POSIX path without `..`, and without a slash at its end."""
    if not path.startswith("/"):
        raise fault(
            "invalid-path",
            f"`{path[:80]}` isn't an absolute path",
            f"for example `/{path.lstrip('./')[:60] or 'data'}`",
        )
    if ".." in path.split("/"):
        raise fault("invalid-path", f"`{path[:80]}` may not contain `..`", "write the path it leads to")
    return str(PurePosixPath(path))


AbsolutePath = Annotated[str, AfterValidator(absolute), TextPattern("^/")]


def _mount_halves(written: str) -> tuple[str, str]:
    parts = written.split(":")
    if len(parts) != 2 or not all(parts):
        hint = "for example `my-volume:/data` or `/host/folder:/data`"
        why = "has no access mode" if len(parts) == 3 else "has one colon"
        raise fault("invalid-mount", f"`{written[:80]}` isn't a mount: it {why}", hint)
    return parts[0], parts[1]


def _is_name(written: Any) -> bool:
    return isinstance(written, str) or is_number(written)


def _volume_names(written: Any) -> Any:
    if isinstance(written, dict) or written is None or isinstance(written, bool):
        raise fault("wrong-type", "expected the name of a volume, or a list of names", "for example `name: my-volume`")
    if isinstance(written, list | tuple) and not (written and all(map(_is_name, written))):
        raise fault("wrong-type", "expected a list of names of volumes", "for example `name: [volume-1, volume-2]`")
    return written


class VolumeMountPoint(Spec):
    """A network volume, mounted at a path."""

    name: Annotated[str | tuple[str, ...], Reads(_volume_names)] = Field(
        description="The volume, or several; the one in the right place is used."
    )
    path: AbsolutePath = Field(description="Where it is in the container.")


class InstanceMountPoint(Spec):
    """A folder of the host, mounted at a path."""

    instance_path: AbsolutePath = Field(description="The folder on the host.")
    path: AbsolutePath = Field(description="Where it is in the container.")
    optional: bool = Field(default=False, description="Continue without it if the backend doesn't support it.")


def _read_mount(written: Any) -> Any:
    if isinstance(written, dict | VolumeMountPoint | InstanceMountPoint):
        return written
    if not isinstance(written, str):
        raise fault("invalid-mount", "expected a mount", "for example `my-volume:/data` or `/host/folder:/data`")
    source, path = _mount_halves(written)
    return {"instance_path": source, "path": path} if "/" in source else {"name": source, "path": path}


def _mount_arm(value: Any) -> str:
    has = "instance_path" in value if isinstance(value, dict) else isinstance(value, InstanceMountPoint)
    return TAG + ("InstanceMountPoint" if has else "VolumeMountPoint")


MountPoint = Annotated[
    Annotated[VolumeMountPoint, Tag(TAG + "VolumeMountPoint")]
    | Annotated[InstanceMountPoint, Tag(TAG + "InstanceMountPoint")],
    Discriminator(_mount_arm),
    Reads(_read_mount, (_TEXT | {"pattern": "^[^:]+:/[^:]*$", "examples": ["my-volume:/data", "/host/folder:/data"]},)),
]


def _in_container(path: str) -> str:
    """Containers have POSIX paths, whatever this machine has."""
    if re.match(r"[A-Za-z]:[\\/]|//|\\\\", path):
        raise fault("invalid-path", f"`{path[:80]}` isn't a path in a container", r"say where it goes: `C:\data:/data`")
    return path


class FilePathMapping(Spec):
    """A local file or folder, and its path in the job."""

    local_path: str = Field(
        description="Relative to the configuration file's folder; `~` is the home folder.", min_length=1
    )
    path: Annotated[str, AfterValidator(_in_container)] = Field(
        description="Relative to the working directory; `~` is the container user's home.", min_length=1
    )

    SHORT_FORMS: ClassVar[tuple[JsonSchema, ...]] = (_TEXT | {"examples": ["data", "config.toml:/etc/app.toml"]},)

    @classmethod
    def read(cls, written: Any) -> Any:
        if not isinstance(written, str):
            return written
        drive = 2 if re.match(r"[A-Za-z]:(\\|/[^:]*:)", written) else 0  # C:\ and C:/data:/data
        local, colon, path = written[drive:].partition(":")
        local = written[:drive] + local
        if not local or ":" in path or (colon and not path):
            hint = "for example `data` or `config.toml:/etc/app.toml`"
            raise fault("invalid-path", f"`{written[:80]}` isn't a file and where it goes", hint)
        return {"local_path": local, "path": path or local}


class RepoSpec(Spec):
    """A git repository, checked out before the commands run."""

    local_path: str | None = Field(default=None, description="A local checkout; its uncommitted changes are included.")
    url: str | None = Field(default=None, description="The address of a repository.")
    branch: str | None = Field(default=None, description="The branch; the repository's default unless set.")
    hash: str | None = Field(default=None, description="The commit; the head of the branch unless set.")
    path: str = Field(default=".", description="Where it goes; relative to the working directory.")
    if_exists: Literal["error", "skip"] = Field(default="error", description="What to do if the path already exists.")

    SHORT_FORMS: ClassVar[tuple[JsonSchema, ...]] = (_TEXT | {"examples": [".", "https://github.com/me/app:/app"]},)

    @classmethod
    def read(cls, written: Any) -> Any:
        if not isinstance(written, str):
            return written
        remote = re.fullmatch(r"((?:[a-z]+://|[A-Za-z0-9_.-]+@[^:/]+:)[^:]*(?::[0-9]+/[^:]*)?)(?::([^:]+))?", written)
        if remote:
            return {"url": remote[1]} | ({"path": remote[2]} if remote[2] else {})
        files = FilePathMapping.read(written)
        where = {"path": files["path"]} if written != files["local_path"] else {}
        return {"local_path": files["local_path"], **where}

    @model_validator(mode="after")
    def _one_source(self) -> RepoSpec:
        found = []
        if self.local_path and self.url:
            found.append(("exclusive", "a repo is either local or remote", "keep `local_path` or `url`", "url"))
        if not self.local_path and not self.url:
            found.append(("missing", "a repo needs `local_path` or `url`", "for example `- local_path: .`", ""))
        if self.path.startswith("~") and self.path != "~" and not self.path.startswith("~/"):
            found.append(
                ("invalid-path", f"`{self.path[:60]}`: another user's home can't be used", "write `~/app`", "path")
            )
        if found:
            raise faults(found)
        return self
