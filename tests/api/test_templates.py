"""Templates: the operator's files, of which the web console makes forms."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from chalicelib.runtime.data_folder import templates_in
from tests.api.rig import Rig

GOOD = b"""\
type: template
name: notebook
title: A notebook
description: In the browser
parameters:
  - type: name
  - type: resources
  - {type: env, title: Your token, name: HF_TOKEN}
configuration:
  type: dev-environment
  ide: vscode
"""


@pytest.fixture
def folder(rig: Rig, tmp_path: Path) -> Path:
    made = tmp_path / "templates"
    rig.world.plane = replace(rig.world.plane, templates=lambda: templates_in(made))
    return made


def test_there_are_none_until_somebody_writes_one(rig: Rig, folder: Path) -> None:
    assert rig.ok("P/templates/list") == []
    folder.mkdir()
    (folder / "notebook.yml").write_bytes(GOOD)
    (folder / "README.md").write_text("not a template")
    variable = {"type": "env", "title": "Your token", "name": "HF_TOKEN", "value": None}
    assert rig.ok("P/templates/list") == [
        {
            "type": "template",
            "name": "notebook",
            "title": "A notebook",
            "description": "In the browser",
            "parameters": [{"type": "name"}, {"type": "resources"}, variable],
            "configuration": {"type": "dev-environment", "ide": "vscode"},
        }
    ]


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        (b"type: resources", b"type: colour", "colour"),
        (b"title: A notebook", b"tilte: A notebook", "tilte"),
        (b"type: resources", b"{type: resources, name: x}", "only a parameter of `type: env`"),
        (b"type: dev-environment", b"type: notebook", "notebook"),
        (b"name: notebook", b"name: [", "broken.yml"),
    ],
)
def test_a_file_that_is_wrong_is_named(rig: Rig, folder: Path, before: bytes, after: bytes, why: str) -> None:
    folder.mkdir()
    (folder / "broken.yml").write_bytes(GOOD.replace(before, after))
    reply = rig.call(f"/api/project/{rig.project.name}/templates/list")
    assert reply.status == 400 and why in reply.body.decode(), reply.body


def test_they_are_for_members(rig: Rig, folder: Path) -> None:
    assert rig.call("/api/project/main/templates/list", token=rig.user("far")).status == 403
