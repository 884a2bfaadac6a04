"""The pictures of the console in the docs are of a real server. `make console-pictures` takes them anew."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from tests.console.harness.browser import Tab
from tests.harness.server import ROOT, Server

PICTURES = ROOT / "docs" / "console"
LARGEST = 60_000  # bytes
SHOWN = {
    "overview": ("#/main/overview", "Needs attention"),
    "runs": ("#/main/runs", "exited with status 3"),
    "run": ("#/main/runs/waits", "needs 8 GPUs"),
    "service": ("#/main/services/chat", "Always 1 replica."),
    "launch": ("#/main/launch?gpu=A100:80GB:1&backend=aws", "Creates trial."),
    "offers": ("#/main/offers", "A100 80GB"),
}


def test_the_docs_have_small_pictures_of_pages_that_are_there(
    server: Server, tabs: Callable[..., Tab], tmp_path: Path
) -> None:
    tab = tabs(width=1200, height=750, token=server.token)
    folder = PICTURES if os.environ.get("PICTURES") == "write" else tmp_path
    for name, (place, text) in SHOWN.items():
        tab.go(place)
        tab.see(text)
        picture = folder / f"{name}.webp"
        tab.picture(picture)
        assert 5_000 < picture.stat().st_size <= LARGEST, name
    kept = {path.stem for path in PICTURES.iterdir()}
    assert kept == set(SHOWN), "take them anew: make console-pictures"
    assert all(path.stat().st_size <= LARGEST for path in PICTURES.iterdir())
