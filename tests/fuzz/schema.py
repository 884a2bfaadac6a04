"""`python -m tests.fuzz.schema`: a fuzzer that others wrote reads our OpenAPI document, and holds a server to it.

Schemathesis makes calls from the document's types and examples, right ones and wrong ones, for every kind of caller.
There must be no answer of 5xx, and none with a status, a content type or keys that the document doesn't have.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from tests.api.rig import fleet, task
from tests.harness.server import ROOT, TOKEN, Server

PROGRAM = ROOT / ".venvs" / "schemathesis" / "bin" / "schemathesis"
CHECKS = ("not_a_server_error", "status_code_conformance", "content_type_conformance", "response_schema_conformance")
LEFT_OUT = (
    "users_refresh_token",  # these would take the caller's rights away
    "access_tokens_revoke_own",
    "users_update",
    "users_delete",
    "projects_delete",
    "projects_set_members",
    "projects_remove_members",
    "v1_users_change",
    "v1_users_delete",
    "v1_projects_delete",
    "v1_projects_set_member",
    "v1_projects_remove_member",
    "streams_open_stream",  # answers with another protocol
)
TOKENS = {
    "a token that reads": {"verbs": ["read"], "projects": ["main"]},
    "a token with a limit": {"verbs": ["run", "fleets", "project", "server"], "dollars_a_day": 0.5},
}
# Python's parser counts its depth once for all threads, so it fails at random (`SystemError: AST constructor recursion
# depth mismatch`) where two parse at a time, as hypothesis does. The server keeps another core busy.
WORKERS = "1"
SETTINGS = """\
[parameters]
"path.project_name" = "main"
"path.run_name" = "seen"
"path.backend_name" = "aws"
"path.fleet_name" = "seen"
"path.volume_name" = "seen"
"path.gateway_name" = "seen"
"path.secret_name" = "seen"
"path.user_name" = "one-user"
"path.backend_type" = "aws"
"path.instance_num" = "0"

[phases.coverage]
unexpected-methods = []
"""


class Caller(NamedTuple):
    name: str
    token: str


def callers(server: Server) -> list[Caller]:
    """One of each kind, and a run, a fleet and a secret to ask for. Of access tokens: one that may hardly anything, and
    one that may whatever a token may, but for little money."""
    found = [Caller("nobody", ""), Caller("a forger", "0" * 32), Caller("a global admin", TOKEN)]
    for role in ("user", "manager", "admin", ""):
        made = server.call("/api/users/create", {"username": f"one-{role}", "global_role": "user"})
        found.append(Caller(f"a project's {role}" if role else "a user of no project", made["creds"]["token"]))
        if role:
            member = {"username": f"one-{role}", "project_role": role}
            server.call("/api/projects/main/add_members", {"members": [member]})
    for name, wanted in TOKENS.items():
        made = server.call("/api/users/access_tokens/create", {"name": f"of-{len(found)}", **wanted})
        found.append(Caller(name, made["token"]))
    server.call("/api/project/main/fleets/apply", {"plan": {"spec": fleet("seen")}, "force": False})
    server.call("/api/project/main/runs/apply", {"plan": {"run_spec": task("seen")}, "force": False})
    server.call("/api/project/main/secrets/create_or_update", {"name": "seen", "value": "v"})
    return found


def command(server: Server, caller: Caller, settings: Path, *, examples: int, seed: int) -> list[str]:
    head = ["--header", f"Authorization: Bearer {caller.token}"] if caller.token else []
    left_out = [word for name in LEFT_OUT for word in ("--exclude-operation-id", name)]
    return [
        *(str(PROGRAM), "--config-file", str(settings), "run", f"{server.url}/openapi.json", "--url", server.url),
        *("--phases", "examples,coverage,fuzzing", "--checks", ",".join(CHECKS), "--workers", WORKERS),
        *("--max-examples", str(examples), "--seed", str(seed), "--generation-database", "none", "--warnings", "off"),
        *("--continue-on-failure", *head, *left_out),
    ]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.schema", description=__doc__)
    parser.add_argument("--examples", type=int, default=20, help="calls of each operation, for each kind of caller")
    parser.add_argument("--seed", type=int, default=1, help="which ones")
    parser.add_argument("--only", default="", help="this kind of caller alone")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        settings = Path(folder) / "schemathesis.toml"
        settings.write_text(SETTINGS)
        server = Server(Path(folder) / "home", flags=("--no-local-fleet", "-n"))
        server.home.mkdir()
        try:
            server.start()
            asked = [caller for caller in callers(server) if given.only in ("", caller.name)]
            failed = [each.name for each in asked if not _holds(server, each, settings, given.examples, given.seed)]
        finally:
            server.close()
        logged = [line for line in server.lines if "Traceback" in line or "error id" in line]
    print(f"{len(failed)} kinds of callers found a fault{': ' if failed else ''}{', '.join(failed)}")
    print("\n".join(logged[:20]))
    return 1 if failed or logged else 0


def _holds(server: Server, caller: Caller, settings: Path, examples: int, seed: int) -> bool:
    print(f"--- {caller.name}", flush=True)
    done = subprocess.run(
        command(server, caller, settings, examples=examples, seed=seed),
        cwd=settings.parent,
        env={"PATH": os.environ["PATH"], "HOME": str(settings.parent), "LANG": "C.UTF-8"},
        capture_output=True,
        text=True,
    )
    print(done.stdout if done.returncode else _summary(done.stdout), done.stderr, flush=True)
    return done.returncode == 0


def _summary(output: str) -> str:
    return output[output.rfind("= SUMMARY") :]


if __name__ == "__main__":
    sys.exit(main())
