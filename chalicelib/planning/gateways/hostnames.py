"""The host names of services at a gateway. The domain's owner points `*.<domain>` at the gateway."""

from __future__ import annotations

from chalicelib.domain.gateways import Gateway

MODELS = "gateway"  # the label of the host that serves all models of the project; no service may have this name


def url_of(gateway: Gateway, run_name: str, *, https: bool) -> str:
    port = gateway.https_port if https else gateway.http_port
    usual = port == (443 if https else 80)
    scheme = "https" if https else "http"
    return f"{scheme}://{run_name}.{gateway.domain.lower()}{'' if usual else f':{port}'}/"


def model_host(host: str) -> str:
    """The host that serves all models, given the host of a service."""
    return f"{MODELS}.{host.partition('.')[2]}"
