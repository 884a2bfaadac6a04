"""The common part of all runs (dev environments, tasks and services), and helpers for their groups."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, ValidationInfo, model_validator

from chalicelib.domain.bounds import LAST_UNIX_ID
from chalicelib.domain.specs.env import Env
from chalicelib.domain.specs.mounts import FilePathMapping, MountPoint, RepoSpec
from chalicelib.domain.specs.profiles import ProfileParams
from chalicelib.domain.specs.reading import Integer, Reads, TextPattern, fault, faults, from_file
from chalicelib.domain.specs.resources import ResourcesSpec
from chalicelib.domain.specs.secrecy import SECRET, Confidential

PythonVersion = Literal["3.9", "3.10", "3.11", "3.12", "3.13", "3.14", "3.15"]
Fault = tuple[str, str, str, str]


def _python(written: Any) -> Any:
    """Read the number 3.1 as `3.10`, because that is what YAML makes of it and there is no Python 3.1."""
    if isinstance(written, float):
        return "3.10" if written == 3.1 else str(written)
    return written


def _shell(shell: str) -> str:
    if shell in ("sh", "bash") or shell.startswith("/"):
        return shell
    raise fault("invalid-value", f"`{shell[:40]}` isn't a shell", f"`sh`, `bash`, or a path: `/bin/{shell[:40]}`")


def _user(user: str) -> str:
    parts = user.split(":")
    if len(parts) > 2 or not all(parts) or any(part.startswith("-") for part in parts):
        raise fault("invalid-value", f"`{user[:60]}` isn't a user", "for example `ubuntu`, `1000` or `1000:1000`")
    for part in parts:
        if part.isdecimal() and (len(part) > len(str(LAST_UNIX_ID)) or int(part) > LAST_UNIX_ID):
            raise fault(
                "invalid-value", f"`{part[:60]}` is too large for a user or group id", f"at most {LAST_UNIX_ID}"
            )
    return user


def _entrypoint(command: str) -> str:
    try:
        shlex.split(command)
    except ValueError as problem:
        why = str(problem).lower().removeprefix("no ")
        raise fault(
            "invalid-value", f"`{command[:60]}` lacks a {why}", "for example `/bin/sh -c` or `python 'my app.py'`"
        ) from None
    return command


def _working_dir(path: str, info: ValidationInfo) -> str:
    """Refuse relative paths in files. Older clients still send them, relative to the former directory of repos."""
    if from_file(info) and not path.startswith(("/", "~")):
        raise fault(
            "invalid-path", f"`{path[:80]}` isn't an absolute path", f"for example `/{path[:60]}` or `~/{path[:60]}`"
        )
    return path


def _home_dir(path: str) -> str:
    if not path.startswith("/"):
        raise fault("invalid-path", f"`{path[:80]}` isn't an absolute path", f"for example `/home/{path[:60]}`")
    return path


def _repos(repos: tuple[RepoSpec, ...]) -> tuple[RepoSpec, ...]:
    if len(repos) > 1:
        raise fault(
            "too-many",
            f"one repo at most, got {len(repos)}",
            "bring others along with `files`, or clone them in `commands`",
        )
    return repos


Python = Annotated[PythonVersion, Reads(_python, ({"type": "number"},))]


class RegistryAuth(Confidential):
    """Credentials for the registry of a private image."""

    username: str = Field(description="Can use `${{ env.NAME }}` and `${{ secrets.NAME }}`.")
    password: Annotated[str, SECRET] = Field(description="Can use `${{ env.NAME }}` and `${{ secrets.NAME }}`.")


class RunConfiguration(ProfileParams):
    """What all runs have."""

    name: str | None = Field(default=None, description="The name of the run; a random one unless set.")
    image: str | None = Field(default=None, description="The image to run; one with Python unless set.")
    user: Annotated[str, AfterValidator(_user)] | None = Field(
        default=None,
        description="`user[:group]`, names or ids: of the image or, where jobs are plain processes, of the host, "
        "which is for the project's admins.",
    )
    privileged: bool = Field(default=False, description="Run the container privileged.")
    entrypoint: Annotated[str, AfterValidator(_entrypoint)] | None = Field(
        default=None, description="Replaces the image's entrypoint; `commands` become its arguments."
    )
    working_dir: Annotated[str, AfterValidator(_working_dir), TextPattern("^[/~]")] | None = Field(
        default=None, description="An absolute path, or one that begins with `~`."
    )
    home_dir: Annotated[str, AfterValidator(_home_dir), TextPattern("^/")] = Field(
        default="/root",
        description="Where `~` and `HOME` are; made if it isn't there. `/root`: the home of the job's user.",
    )
    registry_auth: RegistryAuth | None = Field(default=None, description="Credentials for a private image.")
    python: Python | None = Field(
        default=None, description="The Python version of the default image; not with `image`."
    )
    nvcc: bool | None = Field(default=None, description="Use the default image that has the CUDA compiler.")
    single_branch: bool | None = Field(default=None, description="Clone one branch of the repo only.")
    env: Env = Field(default={}, description="Environment variables.")
    shell: Annotated[str, AfterValidator(_shell), TextPattern("^(sh|bash|/.*)$")] | None = Field(
        default=None, description="`sh`, `bash` or an absolute path."
    )
    resources: ResourcesSpec = Field(default=ResourcesSpec(), description="What the machine must have.")
    priority: Integer | None = Field(default=None, description="0 to 100, higher first; 0 unless set.", ge=0, le=100)
    volumes: tuple[MountPoint, ...] = Field(default=(), description="Volumes and host folders to mount.")
    docker: bool | None = Field(
        default=None, description="Run a Docker engine inside; not with `image`, `python` or `nvcc`."
    )
    repos: Annotated[tuple[RepoSpec, ...], AfterValidator(_repos)] = Field(
        default=(), description="A git repository to check out."
    )
    files: tuple[FilePathMapping, ...] = Field(default=(), description="Local files and folders to upload.")
    dstack: bool = Field(default=False, description="Let the job reach this control plane.")
    setup: tuple[str, ...] = Field(default=(), description="Commands of dev environments that run before `init`.")

    @classmethod
    def read(cls, written: Any) -> Any:
        """`repo: x` is short for `repos: [x]`."""
        if isinstance(written, dict) and isinstance(written.get("repo"), str | dict) and not written.get("repos"):
            return {k: v for k, v in written.items() if k not in ("repo", "repos")} | {"repos": [written["repo"]]}
        return written

    def _image_faults(self) -> list[Fault]:
        """Faults where both an image and fields that need the default image are set."""
        found: list[Fault] = []
        if self.image and self.python:
            found.append(
                ("exclusive", "`python` chooses a default image, and `image` another", "keep one of them", "python")
            )
        if self.docker:
            found += [
                ("exclusive", f"`docker` brings its own image: not with `{other}`", "keep one of them", "docker")
                for other in ("image", "python", "nvcc")
                if getattr(self, other)
            ]
        return found

    def _faults(self) -> list[Fault]:
        """Faults of combinations of fields. Subclasses add their own."""
        return self._image_faults()

    @model_validator(mode="after")
    def _together(self) -> RunConfiguration:
        if found := self._faults():
            raise faults(found)
        return self


GROUP_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")


def group_name(name: str) -> str:
    if not GROUP_NAME.fullmatch(name):
        raise fault("invalid-name", f"`{name[:50]}` can't name a group", "1 to 40 of a-z, 0-9 and `-`, not `-` first")
    return name


def number_groups(written: Any) -> Any:
    """Groups without a name are named after their position."""
    if not isinstance(written, list | tuple):
        return written
    return [
        group | {"name": str(place)} if isinstance(group, dict) and group.get("name") is None else group
        for place, group in enumerate(written)
    ]


def doubled_names(names: list[str | None]) -> list[Fault]:
    twice = sorted(str(name) for name, count in Counter(names).items() if count > 1)
    return [("duplicate", f"two groups are called `{name}`", "give each a name of its own", "groups") for name in twice]


GroupName = Annotated[str, AfterValidator(group_name), TextPattern(f"^{GROUP_NAME.pattern}$")]
