"""Run configurations and the run spec that carries one."""

from __future__ import annotations

from typing import Any, Literal

from chalicelib.domain.noun import Value
from chalicelib.domain.specs.profiles import Profile, ProfileParams
from chalicelib.domain.specs.resources import ResourcesSpec


class TaskConfiguration(ProfileParams):
    nodes: int | None = None
    groups: tuple[Any, ...] | None = None
    ports: tuple[Any, ...] = ()
    commands: tuple[str, ...] = ()
    type: Literal["task"] = "task"
    name: str | None = None
    image: str | None = None
    user: str | None = None
    privileged: bool = False
    entrypoint: str | None = None
    working_dir: str | None = None
    home_dir: str = "/home/user"
    registry_auth: Any | None = None
    python: str | None = None
    nvcc: bool | None = None
    single_branch: bool | None = None
    env: dict[str, str] = {}
    shell: str | None = None
    resources: ResourcesSpec = ResourcesSpec()
    priority: int | None = None
    volumes: tuple[Any, ...] = ()
    docker: bool | None = None
    repos: tuple[Any, ...] = ()
    files: tuple[Any, ...] = ()
    dstack: bool = False
    setup: tuple[str, ...] = ()


class FileArchiveMapping(Value):
    id: str
    path: str


class RunSpec(Value):
    run_name: str | None = None
    repo_id: str | None = None
    repo_data: Any | None = None
    repo_code_hash: str | None = None
    repo_dir: str | None = None
    file_archives: tuple[FileArchiveMapping, ...] = ()
    working_dir: str | None = None
    configuration_path: str | None = None
    configuration: TaskConfiguration
    profile: Profile | None = None
    ssh_key_pub: str | None = None
