"""Where the methods of Compute Engine are called."""

from __future__ import annotations

import json

from chalicelib.backends.kit.tables import table
from tests.backends.gcp.fake import HERE

PROJECT = "/compute/v1/projects/{project}"


def test_methods_are_called_where_googles_document_has_them() -> None:
    document = json.loads((HERE / "compute.json").read_text())["operations"]
    for service, methods in table("gcp/methods.toml").items():
        for name, called in methods.items():
            verb, _, path = called.partition(" ")
            known = document[f"{service}.{name}"]
            assert (verb, "/".join(filter(None, (PROJECT, path)))) == (known["method"], known["path"])
