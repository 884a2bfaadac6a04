"""The part of `server/config.yml` for Kubernetes clusters."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from chalicelib.domain.specs.credentials import Confidential, Secret, Text, one_of
from chalicelib.domain.specs.reading import Integer, JsonSchema, Spec, faults


class Kubeconfig(Confidential):
    """A kubeconfig, by path or by value."""

    filename: Text | None = Field(default=None, description="The file; or `data`.")
    data: Secret | None = Field(default=None, description="Its text; or `filename`.")

    @model_validator(mode="after")
    def _given_once(self) -> Kubeconfig:
        one_of(self, "filename", "data")
        return self


class KubernetesProxyJump(Spec):
    """How to reach the cluster's nodes from outside."""

    hostname: Text | None = Field(default=None, description="The address of a node; detected unless set.")
    port: Integer | None = Field(default=None, description="Its port; detected unless set.", ge=1, le=65535)


class KubernetesContext(Spec):
    """A cluster: a context of the kubeconfig. Its name is the region."""

    name: Text = Field(description="The context's name.")
    proxy_jump: KubernetesProxyJump | None = Field(default=None, description="How to reach its nodes.")

    SHORT_FORMS: ClassVar[tuple[JsonSchema, ...]] = ({"type": "string", "examples": ["my-cluster"]},)

    @classmethod
    def read(cls, written: Any) -> Any:
        return {"name": written} if isinstance(written, str) else written


class KubernetesBackendConfig(Spec):
    """Kubernetes clusters."""

    type: Literal["kubernetes"] = Field(description="`kubernetes`.")
    kubeconfig: Kubeconfig = Field(description="The kubeconfig.")
    contexts: tuple[KubernetesContext, ...] | None = Field(
        default=None, description="Contexts to use, one per cluster; the current one unless set.", min_length=1
    )
    proxy_jump: KubernetesProxyJump | None = Field(
        default=None, description="The older form for one cluster; with `contexts`, each has its own."
    )
    namespace: Text | None = Field(default=None, description="The older form for one cluster; `default` unless set.")

    @model_validator(mode="after")
    def _one_form(self) -> KubernetesBackendConfig:
        names = [context.name for context in self.contexts or ()]
        found = [
            ("duplicate", f"the context `{name[:60]}` appears twice", "keep one of the two", f"contexts.{place}")
            for place, name in enumerate(names)
            if name in names[:place]
        ]
        older = {"proxy_jump": "write it below the context", "namespace": "the context in the kubeconfig says it"}
        for field, hint in older.items():
            if self.contexts is not None and getattr(self, field) is not None:
                found.append(("exclusive", f"`{field}` can't go together with `contexts`", hint, field))
        if found:
            raise faults(found)
        return self
