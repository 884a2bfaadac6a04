"""Dev environments, tasks, and the run spec with any run's configuration. Services have their own file."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag

from chalicelib.domain.specs.mounts import PortMapping
from chalicelib.domain.specs.profiles import Profile
from chalicelib.domain.specs.quantities import InactivityDuration
from chalicelib.domain.specs.reading import TAG, Integer, Reads, Spec, unset
from chalicelib.domain.specs.resources import ResourcesSpec
from chalicelib.domain.specs.services import ServiceConfiguration
from chalicelib.domain.specs.workloads import Fault, GroupName, RunConfiguration, doubled_names, number_groups


class DevEnvironmentConfiguration(RunConfiguration):
    """A machine to work on, from an IDE or a terminal."""

    type: Literal["dev-environment"] = Field(default="dev-environment", description="`dev-environment`.")
    ide: Literal["vscode", "cursor", "windsurf", "zed"] | None = Field(
        default=None, description="The IDE to prepare; none unless set."
    )
    version: str | None = Field(default=None, description="The IDE's version; its server is prepared if set.")
    init: tuple[str, ...] = Field(default=(), description="Commands that run at the start.")
    inactivity_duration: InactivityDuration = Field(
        default=None, description="Stop once nobody has been connected for this long."
    )
    ports: tuple[PortMapping, ...] = Field(default=(), description="Ports to forward while attached.")

    def _faults(self) -> list[Fault]:
        found = super()._faults()
        if self.entrypoint is not None:
            found.append(("exclusive", "a dev environment has no entrypoint", "put commands in `init`", "entrypoint"))
        if self.version and self.ide is None:
            found.append(("missing", "`version` is the version of an IDE", "add `ide: vscode`", "version"))
        if self.ide == "windsurf" and self.version and not re.fullmatch(r"[0-9][^@\s]*@[0-9a-f]+", self.version):
            hint = "write the version, `@` and the commit: `1.106.0@8951cd3a`"
            found.append(("invalid-value", f"`{self.version[:60]}` isn't a version of Windsurf", hint, "version"))
        if self.inactivity_duration is not None and self.dstack:
            hint = "remove one of them: a job that drives the control plane has nobody connected"
            found.append(("exclusive", "`inactivity_duration` doesn't go with `dstack`", hint, "inactivity_duration"))
        return found


class NodeGroup(Spec):
    """Identical nodes of a task."""

    name: GroupName | None = Field(default=None, description="Its name; its position in the list unless set.")
    nodes: Integer = Field(default=1, description="How many nodes.", ge=1, le=100_000)
    resources: ResourcesSpec = Field(
        default=ResourcesSpec(), description="What each machine must have; nothing is inherited."
    )
    commands: tuple[str, ...] = Field(default=(), description="The commands of its nodes.")
    ports: tuple[PortMapping, ...] = Field(default=(), description="Ports to forward while attached.")


class TaskConfiguration(RunConfiguration):
    """Commands that run to completion, on one machine or several."""

    type: Literal["task"] = Field(default="task", description="`task`.")
    nodes: Integer | None = Field(
        default=None, description="How many nodes; 1 unless set.", ge=1, le=100_000, exclude_if=unset
    )
    groups: Annotated[tuple[NodeGroup, ...], Field(min_length=1), Reads(number_groups)] | None = Field(
        default=None, description="Groups of nodes that differ; instead of `nodes`.", exclude_if=unset
    )
    ports: tuple[PortMapping, ...] = Field(default=(), description="Ports to forward while attached.")
    commands: tuple[str, ...] = Field(default=(), description="The commands, one after the other.")

    def _faults(self) -> list[Fault]:
        found = super()._faults()
        if self.groups is None:
            if not self.commands and not self.image:
                found.append(
                    ("missing", "a task needs `commands`, or an `image` that has its own", "add `commands: [...]`", "")
                )
            return found
        if self.nodes is not None:
            found.append(("exclusive", "`groups` say how many nodes there are", "remove `nodes`", "nodes"))
        for field in ("commands", "ports", "entrypoint"):
            if getattr(self, field):
                found.append(("exclusive", f"with `groups`, `{field}` belong to a group", "move it there", field))
        for place, group in enumerate(self.groups):
            if not group.commands and not self.image:
                hint = "add `commands` to the group, or an `image` to the task"
                found.append(("missing", "a group needs commands", hint, f"groups.{place}"))
        return found + doubled_names([group.name for group in self.groups])


class FileArchiveMapping(Spec):
    """An uploaded archive, and its path in the job."""

    id: str
    path: str


class RemoteRunRepoData(Spec):
    repo_type: Literal["remote"] = "remote"
    repo_name: str
    repo_branch: str | None = None
    repo_hash: str | None = None
    repo_diff: str | None = Field(default=None, exclude_if=unset)  # uploaded separately; kept if a client sends it here
    repo_config_name: str | None = None
    repo_config_email: str | None = None


class LocalRunRepoData(Spec):
    repo_type: Literal["local"] = "local"
    repo_dir: str


class VirtualRunRepoData(Spec):
    repo_type: Literal["virtual"] = "virtual"


def tagged(field: str, names: dict[str, str], noun: str) -> Any:
    """A discriminator: `names` maps the value of `field` to the model it means."""

    def arm(value: Any) -> str:
        found = value.get(field) if isinstance(value, dict) else getattr(value, field, None)
        if isinstance(found, str) and found in names:
            return TAG + names[found]
        return TAG

    return Discriminator(arm, custom_error_type=f"unknown-{field}", custom_error_message=noun)


_REPO_DATA = {"remote": "RemoteRunRepoData", "local": "LocalRunRepoData", "virtual": "VirtualRunRepoData"}
RepoData = Annotated[
    Annotated[RemoteRunRepoData, Tag(TAG + "RemoteRunRepoData")]
    | Annotated[LocalRunRepoData, Tag(TAG + "LocalRunRepoData")]
    | Annotated[VirtualRunRepoData, Tag(TAG + "VirtualRunRepoData")],
    tagged("repo_type", _REPO_DATA, "one of `remote`, `local` and `virtual`"),
]

RUNS = {
    "dev-environment": "DevEnvironmentConfiguration",
    "task": "TaskConfiguration",
    "service": "ServiceConfiguration",
}
AnyRunConfiguration = Annotated[
    Annotated[DevEnvironmentConfiguration, Tag(TAG + "DevEnvironmentConfiguration")]
    | Annotated[TaskConfiguration, Tag(TAG + "TaskConfiguration")]
    | Annotated[ServiceConfiguration, Tag(TAG + "ServiceConfiguration")],
    tagged("type", RUNS, "one of `dev-environment`, `task` and `service`"),
]


class RunSpec(Spec):
    """A run as it is submitted."""

    run_name: str | None = None
    repo_id: str | None = None
    repo_data: RepoData | None = None
    repo_code_hash: str | None = None
    repo_dir: str | None = None
    file_archives: tuple[FileArchiveMapping, ...] = ()
    working_dir: str | None = None
    configuration_path: str | None = None
    configuration: AnyRunConfiguration
    profile: Profile | None = None
    ssh_key_pub: str | None = None
