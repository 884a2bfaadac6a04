"""The part of `server/config.yml` for Slurm clusters."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from chalicelib.backends.configs import shaped
from chalicelib.domain.specs.credentials import Confidential, Secret, Text, Texts, one_of
from chalicelib.domain.specs.reading import Integer, Spec, faults


class SlurmPrivateKey(Confidential):
    """A private SSH key, by path or by value."""

    path: Text | None = Field(default=None, description="A file with the key; or `content`.")
    content: Secret | None = Field(default=None, description="The key; or `path`.")

    @model_validator(mode="after")
    def _given_once(self) -> SlurmPrivateKey:
        one_of(self, "path", "content")
        return self


_GPU = shaped(r"([A-Za-z]+:)?[A-Za-z0-9][A-Za-z0-9 _.+-]*(:[0-9]+(MB|GB|TB))?", "a GPU", "H100` or `nvidia:H100:80GB")


class SlurmGPUPartitions(Spec):
    """Partitions whose nodes have this GPU."""

    gpu: Annotated[str, AfterValidator(_GPU)] = Field(
        description="The GPU's name, with the vendor before it and the memory after it if needed."
    )
    partitions: Texts = Field(description="The partitions.", min_length=1)


class SlurmCluster(Spec):
    """A cluster, reached through its login node. Its name is the region."""

    name: Text = Field(description="Its name.")
    hostname: Text = Field(description="The login node's address.")
    port: Integer | None = Field(default=None, description="The port of its SSH server; 22 unless set.", ge=1, le=65535)
    user: Text = Field(description="The user to log in as.")
    private_key: SlurmPrivateKey = Field(description="The key to log in with.")
    gpu_partitions: tuple[SlurmGPUPartitions, ...] | None = Field(
        default=None, description="Which partitions have which GPU; unset, no job gets one."
    )
    cpu_partitions: Texts | None = Field(default=None, description="Partitions for jobs without a GPU.")


class SlurmBackendConfig(Spec):
    """Slurm clusters."""

    type: Literal["slurm"] = Field(description="`slurm`.")
    clusters: tuple[SlurmCluster, ...] = Field(description="The clusters.", min_length=1)

    @model_validator(mode="after")
    def _names(self) -> SlurmBackendConfig:
        names = [cluster.name for cluster in self.clusters]
        found = [
            ("duplicate", f"the cluster `{name[:60]}` appears twice", "give it another name", f"clusters.{place}.name")
            for place, name in enumerate(names)
            if name in names[:place]
        ]
        if found:
            raise faults(found)
        return self
