"""Configurations as pydantic models: `Task(name="check", commands=["nvidia-smi"], resources={"gpu": "A100:2"})`.

They take what a `*.dstack.yml` takes, and find mistakes when they are made. A volume's keys depend on its backend, so a
volume is a dict or a file.
"""

from chalicelib.domain.specs.fleets import FleetConfiguration as Fleet
from chalicelib.domain.specs.gateways import GatewayConfiguration as Gateway
from chalicelib.domain.specs.runs import DevEnvironmentConfiguration as DevEnvironment
from chalicelib.domain.specs.runs import TaskConfiguration as Task
from chalicelib.domain.specs.services import ServiceConfiguration as Service

__all__ = ["DevEnvironment", "Fleet", "Gateway", "Service", "Task"]
