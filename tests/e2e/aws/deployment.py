"""A deployment on the emulator, made by `make deploy` in a clean clone, as somebody makes theirs."""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from chalicelib.console import bundle
from infra.account import AwsAccount
from infra.deploy_policy import documents
from infra.deployer import Options
from tests.e2e.aws.front import NO_ANSWER, Front, before
from tests.e2e.aws.guard import ACCOUNT, Guard, on_guard
from tests.emulators.ministack import REGION, Emulator
from tests.harness.server import ROOT, HttpError, Server, until

STAGE = "e2e"
VENV = Path(sys.executable).parents[1]
PATIENCE = 400.0  # seconds: a function starts anew after an upgrade, and two busy cores are slow
HOPS = 12  # of events that ask for each other: the emulator drops the 17th, whatever a template allows
PYTHON = ".".join(map(str, sys.version_info[:2]))  # with which the emulator runs the functions
ANYBODY = AwsAccount(ACCOUNT, REGION, f"arn:aws:iam::{ACCOUNT}:user/deployer")
ALLOWED = Options(alarm=False, vpc=True)  # what its stages deploy, as far as the emulator shows a call of it
PACE = 0.3  # seconds between an agent's calls while something changes


@dataclass
class Deployment(Server):
    """The control plane as a user has it: an address and a token. Its functions live in the emulator."""

    emulator: Emulator | None = None
    front: Front | None = None
    guard: Guard | None = None
    clone: Path = Path()
    variables: Mapping[str, str] = field(default_factory=dict)  # more of the functions'
    _clients: dict[str, Any] = field(default_factory=dict)

    def client(self, service: str) -> Any:
        """Made once: it takes a tenth of a second."""
        assert self.emulator is not None
        if service not in self._clients:
            self._clients[service] = self.emulator.client(service)
        return self._clients[service]

    def make(self, target: str, *, args: str = "", check: bool = True, **variables: str) -> Made:
        """`make deploy` or `make destroy` in the clone, with this machine's environment instead of one of its own."""
        assert self.emulator is not None and self.front is not None and self.guard is not None
        self.guard.of = target
        command = ["make", "-s", "-o", f"{VENV}/.dev", f"VENV={VENV}", target, f"STAGE={STAGE}", "YES=1"]
        inherited = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
        settings = {
            "DSTACK_API_URL": self.front.url,
            "DSTACK_AGENT_URL": self.front.url,
            "DSTACK_SYNC_SECONDS": str(PACE),
            "DSTACK_LONGEST_CHAIN": str(HOPS),
            "DSTACK_AWS_ENDPOINT": self.emulator.url,
            "DSTACK_FAKE_CLOUD": str(self.data / "fake-cloud"),
            "http_proxy": self.guard.url,  # where botocore looks for one
        }
        began, used = time.monotonic(), cpu_of_children()
        done = subprocess.run(
            [*command, f"ARGS=--json --poll 0.2 {f'--python {PYTHON} ' if target == 'deploy' else ''}{args}"],
            cwd=self.clone,
            env={**inherited, **self.emulator.environment, **settings, **self.variables, **variables},
            capture_output=True,
            text=True,
            timeout=600,
        )
        if check and done.returncode != 0:
            raise AssertionError(f"make {target} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
        report = json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else {}
        took, worked = time.monotonic() - began, cpu_of_children() - used
        return Made(report, done.stderr, round(took, 2), round(worked, 2), done.returncode)

    def lead(self) -> None:
        """The front leads to what is deployed now, and its first processes are there: on a busy machine they may take
        longer to start than a caller waits."""
        assert self.front is not None
        outputs = self.outputs(f"dstack-{STAGE}")
        self.front.leads_to(outputs["ApiUrl"], outputs["AgentUrl"])
        until("the API's first answer", self._answers, every=1, seconds=PATIENCE)

    def _answers(self) -> bool:
        try:
            self.call("/api/server/get_info", {})
        except HttpError as error:
            if error.status != NO_ANSWER:
                raise
            return False
        return True

    def outputs(self, stack: str) -> dict[str, str]:
        found = self.client("cloudformation").describe_stacks(StackName=stack)["Stacks"][0]["Outputs"]
        return {one["OutputKey"]: one["OutputValue"] for one in found}


@dataclass(frozen=True)
class Made:
    """What a command said."""

    report: dict[str, Any]
    log: str
    seconds: float
    cpu: float  # seconds of it that the command itself computed: the rest it waited, or shared the machine
    status: int


def cpu_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def cloned(folder: Path) -> Path:
    """What is committed, and nothing else but the bundler; packages that were fetched before aren't fetched again."""
    clone = folder / "clone"
    subprocess.run(["git", "clone", "-q", str(ROOT), str(clone)], check=True)
    fetched = ROOT / "build" / "packages"
    fetched.mkdir(parents=True, exist_ok=True)
    (clone / "build").mkdir()
    (clone / "build" / "packages").symlink_to(fetched)
    if (ROOT / bundle.TOOLS / ".installed").exists():  # as new as the clone, or it would be installed once more
        (clone / bundle.TOOLS).mkdir(parents=True)
        (clone / bundle.TOOLS / "node_modules").symlink_to(ROOT / bundle.TOOLS / "node_modules")
        (clone / bundle.TOOLS / ".installed").touch()
    return clone


@contextmanager
def deployed(
    emulator: Emulator,
    folder: Path,
    env: Mapping[str, str],
    **variables: str,
) -> Iterator[tuple[Deployment, Made]]:
    """The deployment, and what the command that made it said. `env`: more of the environment of its users;
    `variables`: of the functions'."""
    clone = cloned(folder)
    with before(emulator.url) as front, on_guard(documents(STAGE, ANYBODY, ALLOWED)) as guard:
        one = Deployment(
            folder / "home",
            url=front.url,
            env=dict(env),
            emulator=emulator,
            front=front,
            guard=guard,
            clone=clone,
            variables=variables,
        )
        one.home.mkdir()
        try:
            made = one.make("deploy")
            one.token = made.report["admin_token"]
            one.lead()
            yield one, made
        finally:
            one.close()
            shutil.rmtree(one.clone, ignore_errors=True)
