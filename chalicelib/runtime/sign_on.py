"""Who may sign on, by the operator's configuration: people with accounts at providers, and programs."""

from __future__ import annotations

from typing import Any

from chalicelib.configuration.server_spec import ServerConfig
from chalicelib.engine.ports import Clock
from chalicelib.identity.openid import providers_of_accounts
from chalicelib.identity.workloads import issuers_of_workloads


def sign_on_ports(config: ServerConfig, clock: Clock) -> dict[str, Any]:
    return {
        "sign_on": providers_of_accounts(config.sign_on or (), clock),
        "workloads": issuers_of_workloads(config.workloads or (), clock),
    }
