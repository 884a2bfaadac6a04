"""Regenerates every generated page: `make docs`. Tests compare the pages with the output of this module."""

from __future__ import annotations

from pathlib import Path

from chalicelib.configuration import reference
from cli.reference import reference as commands
from docs import (
    client_calls,
    containers_table,
    cost_page,
    draw_states,
    json_page,
    limits_page,
    metrics_page,
    state_changes_page,
)
from docs.openapi.document import DOCUMENT, text
from docs.sdk import python
from tests.wire import differences

FOLDER = Path(__file__).parent


def main() -> None:
    reference.main([str(FOLDER / "reference")])
    (FOLDER / "reference" / "cli.md").write_text(commands(), encoding="utf-8")
    json_page.write()
    state_changes_page.write()
    differences.PAGE.write_text(differences.page(), encoding="utf-8")
    cost_page.write()
    containers_table.write()
    limits_page.write()
    client_calls.write()
    DOCUMENT.write_text(text(), encoding="utf-8")
    python.write()  # of the document
    metrics_page.PAGE.write_text(metrics_page.page(), encoding="utf-8")
    (FOLDER / "states.md").write_text(draw_states.page(), encoding="utf-8")


if __name__ == "__main__":
    main()
