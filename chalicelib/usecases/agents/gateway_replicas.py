"""Orders and reports about the gateway replica on an agent's machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chalicelib.domain.gateways import GatewaySeat
from chalicelib.domain.reports import GatewayReport

if TYPE_CHECKING:
    from chalicelib.contract.agent import GatewayOrder


def wanted(seat: GatewaySeat | None) -> GatewayOrder | None:
    """The order as a response to a sync contains it. A response without one ends the gateway on that machine."""
    if seat is None or seat.leaving:
        return None
    return {"id": seat.gateway_id, "num": seat.num, "http": seat.http_port, "https": seat.https_port}


def as_reported(report: GatewayReport | None) -> GatewayOrder | None:
    """The order that leaves a replica as it is, whatever the records say of it."""
    if report is None:
        return None
    return {"id": report.id, "num": report.num, "http": report.http, "https": report.https}


def must_act(seat: GatewaySeat | None, report: GatewayReport | None) -> bool:
    """Is the wanted replica another than the one that the agent reports?"""
    return wanted(seat) is not None if report is None else not report.is_of(seat)


def settling(seat: GatewaySeat | None, report: GatewayReport | None) -> bool:
    """Will the agent have something to report soon?"""
    return must_act(seat, report) or (report is not None and report.state in ("starting", "installing"))
