"""Specs that are specific to Nebius: its volumes."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from chalicelib.domain.specs.volumes import RegionalVolumeConfiguration


class NebiusVolumeConfiguration(RegionalVolumeConfiguration):
    backend: Literal["nebius"] = Field(default="nebius", description="`nebius`.")
