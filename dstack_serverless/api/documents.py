"""What the API says of itself: an OpenAPI document, a page that shows it, and the schema of configurations.

Generated: `make docs`.
"""

from __future__ import annotations

from dstack_serverless.sdk.flow import Request


def schema() -> Request[str]:
    """The JSON Schema of `*.dstack.yml`, for editors: the one that `dstack init --schema` writes.

    Needs no token.
    """
    return Request(
        "GET",
        "/configuration.schema.json",
        safe=True,
        text=True,
    )
