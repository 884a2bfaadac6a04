"""The guide to presets is what its reader sees: a worker of its own asks a language model, and measures real programs.

The language model is scripted; the page's address of it may be taken here, so the one of the test is written in its
place. Its services run a program that answers word by word; the first one takes fewer tokens than the page asks for.
"""

from __future__ import annotations

import base64
import contextlib
import json
import re
from pathlib import Path

from tests.cli.presets.scripted import Scripted, running
from tests.harness import golden
from tests.harness.installed import program
from tests.harness.server import ROOT, Server
from tests.scenarios.guides import PRESETS, Installed, Shown, play_page, same, server_of

ADDRESS = "http://127.0.0.1:8001/v1"
STAND_IN = ROOT / "tests" / "cli" / "presets" / "stand_in.py"
FIGURES = (  # what differs from run to run, and what stands for it
    (re.compile(r"[▁▂▃▄▅▆▇█]{2}"), "▄█"),
    (re.compile(r"\b[0-9a-f]{8}\b"), "1a2b3c4d"),
    (re.compile(r"\b\d+(?=( tokens/s| tok/s|ms\b| ms\b))"), "100"),
    (re.compile(r"\$[\d.]+(?= a million)"), "$1"),
    (re.compile(r"(?m)^(\d  .*gpu=\S+) +\d+ +\d+ms +\S+"), r"\1  100  100ms  $0"),
    (re.compile(r"\$0\.\d+"), "$0"),
    (re.compile(r"(?m)^preset-1a2b3c4d-\d: .*\n"), ""),  # stages that go by unseen
)


def proposal(hypothesis: str, context: int) -> str:
    text = base64.b64encode(STAND_IN.read_bytes()).decode()  # a job doesn't see this checkout
    commands = [f"echo {text} | base64 -d > model.py", f"exec python3 model.py 0.01 {context}"]
    service = {"commands": commands, "port": 8000, "resources": {"gpu": "A100:1"}}
    return json.dumps({"hypothesis": hypothesis, "repo": "Qwen/Qwen3-8B", "service": service})


def usual(one: Shown) -> Shown:
    texts = []
    for found in (one.written, one.now):
        text = found
        for pattern, replacement in FIGURES:
            text = pattern.sub(replacement, text)
        texts.append(text)
    return Shown(one.command, *texts)


def test_the_guide_shows_what_happens(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    page = tmp_path / PRESETS.name
    server = Server(home, flags=tuple(server_of(PRESETS)), command=(str(program()),))
    answers = [proposal("the defaults of the server", 2048), proposal("room for longer requests", 8192)]
    with running(Scripted(answers=answers)) as scripted, contextlib.closing(server):
        page.write_text(PRESETS.read_text().replace(ADDRESS, f"{scripted.url}/llm/v1"))
        stage = Installed(server.start(), home, "main")
        text, shown = play_page(page, stage)
        runs = server.call("/api/runs/list", {"only_active": True})
    if golden.WRITING:
        PRESETS.write_text(text.replace(f"{scripted.url}/llm/v1", ADDRESS))
        return
    odd = [
        f"$ {each.command}\n--- shown\n{each.written}--- seen\n{each.now}"
        for each in map(usual, shown)
        if not same(each, home)
    ]
    assert not odd, "\n".join(odd)
    assert len(shown) == 6 and len(scripted.asked) == 2
    assert runs == [], "nothing is left running"
