"""`server/config.yml`: the initial settings of a control plane: projects, their backends, keys, permissions."""

from __future__ import annotations

import base64
import binascii
import re
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, RootModel, Tag, model_validator

from chalicelib.backends.registry import BACKENDS
from chalicelib.configuration.providers import PROVIDERS
from chalicelib.domain import names
from chalicelib.domain.specs.automation import Action, ChangeFilter, Name
from chalicelib.domain.specs.credentials import Confidential, Secret, Text, by_type
from chalicelib.domain.specs.providers import ProviderUnion
from chalicelib.domain.specs.reading import TAG, Spec, fault, faults
from chalicelib.domain.specs.sign_on import SignOnProvider
from chalicelib.domain.specs.workload_rules import Workload
from chalicelib.domain.tenants import Permissions
from chalicelib.domain.webhooks import PREFIX, key_of

KEY_BYTES = 32
_REGISTRY = re.compile(r"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9a-fA-F:.]+\])(?::\d{1,5})?")


def backends_built() -> dict[str, str]:
    """The types that a server can use, and the extra that each needs, if any."""
    return {kind: row.extra for kind, row in BACKENDS.items() if row.backend}


def config_model(type: str) -> type[Spec] | None:
    """The model of one type's configuration; None for an unknown type."""
    return PROVIDERS.model("config", type) if type in BACKENDS else None


class BackendConfig(Spec):
    """A backend's configuration: what all of them have."""

    type: str


AnyBackendConfig = Annotated[BackendConfig, ProviderUnion("config", by="type", general=Spec)]


def _project_name(name: str) -> str:
    if wrong := names.problem(name, "project"):
        raise fault("invalid-name", *wrong)
    return name


class AnyBackend(RootModel[AnyBackendConfig]):
    """One backend by itself."""


def _registry(host: str) -> str:
    try:
        shaped = _REGISTRY.fullmatch(host) and urlsplit(f"//{host}").port != 0
    except ValueError:  # no port, or no IPv6 address
        shaped = False
    if not shaped:
        text = f"`{host[:80]}` isn't the host of a registry"
        raise fault("invalid-value", text, "write it as in the names of its images, for example `registry.lan:5000`")
    return host


Registry = Annotated[Text, AfterValidator(_registry)]


class ProjectConfig(Spec):
    """A project, created if missing."""

    name: Annotated[str, AfterValidator(_project_name)] = Field(description="Its name.")
    backends: tuple[AnyBackendConfig, ...] | None = Field(default=None, description="The backends it can use.")

    @model_validator(mode="after")
    def _one_of_a_kind(self) -> ProjectConfig:
        kinds = [backend.type for backend in self.backends or ()]
        found = [
            ("duplicate", f"the backend `{kind}` appears twice", "keep one of the two", f"backends.{place}")
            for place, kind in enumerate(kinds)
            if kind in kinds[:place]
        ]
        if found:
            raise faults(found)
        return self


class IdentityKey(Spec):
    """The server's own key, kept in its data folder."""

    type: Literal["identity"] = Field(description="`identity`.")


def _aes_key(text: str) -> str:
    try:
        size = len(base64.b64decode(text, validate=True))
    except (binascii.Error, ValueError):
        size = 0
    if size != KEY_BYTES:
        raise fault("invalid-value", f"this isn't {KEY_BYTES} bytes in base64", "make one: openssl rand -base64 32")
    return text


class AESKey(Confidential):
    """Your own key, for AES-256-GCM."""

    type: Literal["aes"] = Field(description="`aes`.")
    name: Text = Field(description="Its name.", pattern="^[A-Za-z0-9]+$")
    secret: Annotated[Secret, AfterValidator(_aes_key)] = Field(description="32 random bytes, in base64.")

    @property
    def raw(self) -> bytes:
        return base64.b64decode(self.secret)


AnyKey = Annotated[
    Annotated[IdentityKey, Tag(TAG + "IdentityKey")] | Annotated[AESKey, Tag(TAG + "AESKey")],
    by_type(IdentityKey, AESKey),
]


class EncryptionConfig(Spec):
    """Keys for secrets. The first seals; all of them open."""

    keys: tuple[AnyKey, ...] = Field(description="The keys.")

    @model_validator(mode="after")
    def _once_each(self) -> EncryptionConfig:
        called = [key.name if isinstance(key, AESKey) else "" for key in self.keys]
        found = []
        for place, name in enumerate(called):
            if name in called[:place]:
                what = f"the key `{name[:60]}`" if name else "`identity`"
                found.append(("duplicate", f"{what} appears twice", "keep one of the two", f"keys.{place}"))
        if found:
            raise faults(found)
        return self


class DefaultPermissions(Spec):
    """What users who aren't admins may do."""

    allow_non_admins_create_projects: bool = Field(
        default=Permissions.allow_non_admins_create_projects,
        description="Whether users who aren't global admins may create projects.",
    )
    allow_non_admins_manage_ssh_fleets: bool = Field(
        default=Permissions.allow_non_admins_manage_ssh_fleets,
        description="Whether members who aren't project admins may create SSH fleets, and change and delete their "
        "own; managers those of others too.",
    )
    allow_managers_manage_secrets: bool = Field(
        default=Permissions.allow_managers_manage_secrets,
        description="Whether managers of a project may read, set and delete its secrets.",
    )
    allow_non_admins_run_privileged: bool = Field(
        default=Permissions.allow_non_admins_run_privileged,
        description="Whether members who aren't project admins may run privileged containers, mount hosts' folders "
        "and name hosts' users in `user`.",
    )
    allow_non_admins_run_unisolated: bool = Field(
        default=Permissions.allow_non_admins_run_unisolated,
        description="Whether members who aren't project admins may run jobs where nothing separates them from the "
        "agent; `--trust-jobs` sets it too.",
    )

    @property
    def meant(self) -> Permissions:
        return Permissions(**self.model_dump())


def _webhook_secret(text: str) -> str:
    try:
        key_of(text)
    except ValueError as wrong:
        hint = f'make one: echo "{PREFIX}$(openssl rand -base64 32)"'
        raise fault("invalid-value", str(wrong), hint) from None
    return text


def _webhook_url(text: str) -> str:
    if not _can_be_posted_to(text):
        hint = "for example https://ops.example.com/hook, with `%20` for a space and the like"
        raise fault("invalid-value", "this isn't an address of http or https", hint)
    return text


def _can_be_posted_to(text: str) -> bool:
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:  # a port that is no number, brackets that don't match
        return False
    return (
        parts.scheme in ("http", "https")
        and bool(parts.hostname)
        and parts.username is None
        and port != 0
        and all("!" <= letter <= "~" for letter in text)
    )


class WebhookConfig(Confidential):
    """State changes that are sent to an address, each in a signed message, until it is taken."""

    name: Name = Field(description="Its name.")
    url: Annotated[Secret, AfterValidator(_webhook_url)] = Field(description="Where they are posted to.")
    secret: Annotated[Secret, AfterValidator(_webhook_secret)] = Field(
        description="What they are signed with: `whsec_` and 24 to 64 random bytes in base64."
    )
    events: ChangeFilter = Field(default=ChangeFilter(), description="Which state changes; all of them by default.")


class RuleConfig(Spec):
    """What is done with a stored configuration when something changes its state."""

    name: Name = Field(description="Its name. A rule acts once on each event.")
    when: ChangeFilter = Field(description="Which state changes: `type`, `status` or `reason` must be given.")
    action: Action = Field(description="What to do.")
    project: Text = Field(description="The project of the configuration.")
    configuration: Text = Field(description="The name of a configuration, stored by `dstack automation add`.")

    @model_validator(mode="after")
    def _narrow(self) -> RuleConfig:
        if self.when.type is None and self.when.status is None and self.when.reason is None:
            raise fault("missing", "`type`, `status` or `reason` is needed", "or it would act on everything", at="when")
        return self


class ServerConfig(Spec):
    """The whole file."""

    projects: tuple[ProjectConfig, ...] = Field(description="Projects that must exist. Others are left alone.")
    encryption: EncryptionConfig | None = Field(default=None, description="Keys for secrets.")
    default_permissions: DefaultPermissions | None = Field(
        default=None, description="What users who aren't admins may do."
    )
    webhooks: tuple[WebhookConfig, ...] | None = Field(default=None, description="Where state changes are sent to.")
    rules: tuple[RuleConfig, ...] | None = Field(default=None, description="What is done by itself.")
    sign_on: tuple[SignOnProvider, ...] | None = Field(
        default=None, description="Providers with whose accounts people may sign on."
    )
    workloads: tuple[Workload, ...] | None = Field(
        default=None,
        description="Programs, such as CI jobs, that may sign on with a token of where they run.",
    )
    registries: tuple[Registry, ...] | None = Field(
        default=None,
        description="Registries of images at addresses that aren't public: `HOST:PORT`, or `HOST` for https.",
    )
    plugins: tuple[Text, ...] | None = Field(default=None, description="Plugins to load.")

    @model_validator(mode="after")
    def _names(self) -> ServerConfig:
        called = {
            ("project", "projects"): [project.name for project in self.projects],
            ("webhook", "webhooks"): [hook.name for hook in self.webhooks or ()],
            ("rule", "rules"): [rule.name for rule in self.rules or ()],
            ("provider", "sign_on"): [provider.name for provider in self.sign_on or ()],
            ("workload", "workloads"): [workload.name for workload in self.workloads or ()],
        }
        found = [
            ("duplicate", f"the {what} `{name}` appears twice", "keep one of the two", f"{field}.{place}.name")
            for (what, field), seen in called.items()
            for place, name in enumerate(seen)
            if name in seen[:place]
        ]
        if found:
            raise faults(found)
        return self
