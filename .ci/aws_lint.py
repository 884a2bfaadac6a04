"""Lints what a deployment sends to AWS: templates, policies and state machines, rendered as they would be deployed.

The linters know AWS's own rules and have their own environment (`.venvs/aws_lint`). After a run without findings, they
run again only when something that is rendered has changed.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
TOOLS = ROOT / ".venvs" / "aws_lint" / "bin"
PARTITIONS = ("us-gov-west-1", "cn-north-1")  # a region of each other partition
DONE = ROOT / "build" / "aws_lint"
LINTERS = (".ci/aws_lint.lock", ".ci/aws_policies.py", ".ci/aws_handlers.py", "tests/infra/handlers.json")
# A parameter that is empty unless the function that logs in is in a VPC is split only if it isn't empty.
IGNORED = ["--ignore-checks", "W1033"]


def rendered() -> dict[str, str]:
    """The rendered documents by file name."""
    from chalicelib.engine import asl
    from chalicelib.engine.workflows import WORKFLOWS
    from infra import deploy_policy, functions, spending, stateful
    from infra.account import AwsAccount
    from infra.deployer import Options
    from infra.packaging import packer
    from infra.stateless import Choices

    with packer("dev", {}) as packed:
        main = packed.template(Choices(reserved=functions.reserved(1_000)))
        elsewhere = packed.template(Choices(agent_api=True))
        private = packed.template(Choices(endpoints=("vpce-0123456789abcdef0",)))
    no_budget = spending.template("dev", budget=False)
    templates = {
        "elsewhere": elsewhere,
        "elsewhere-spending": no_budget,
        "stack": main,
        "private": private,
        "data": stateful.template(),
        "spending": spending.template("dev"),
    }
    arn = "arn:aws:lambda:eu-west-1:123456789012:function:performer"
    machines = {f"{name}.machine": asl.render(each, arn) for name, each in WORKFLOWS.items()}
    policies = {
        f"{path.stem}.policy": json.loads(path.read_text()) for path in (ROOT / ".chalice/policies").glob("*.json")
    }
    where = AwsAccount("123456789012", "eu-west-1", "arn:aws:iam::123456789012:user/me")
    key, boundary = f"arn:aws:kms:eu-west-1:{where.id}:key/1-2", f"arn:aws:iam::{where.id}:policy/limits"
    all_ = Options(boundary, key, {"team": "ml"}, alarms=True, bus=True, vpc=True, private=True)
    deploying = deploy_policy.documents("dev", where, all_) + deploy_policy.documents(
        "dev", where, Options(agent_api=True)
    )
    policies |= {f"deploy-{number}.policy": each for number, each in enumerate(deploying)}
    return {f"{name}.json": json.dumps(each, indent=1) for name, each in {**templates, **machines, **policies}.items()}


def commands(folder: Path) -> Iterator[list[str]]:
    templates = sorted(str(path) for path in folder.glob("*.json") if "." not in path.stem)
    yield [str(TOOLS / "cfn-lint"), *templates, *IGNORED]
    elsewhere = [f"--regions={region}" for region in PARTITIONS]
    for name in ("data", "elsewhere", "elsewhere-spending"):
        yield [str(TOOLS / "cfn-lint"), *elsewhere, str(folder / f"{name}.json"), *IGNORED]
    yield [str(TOOLS / "python"), str(ROOT / ".ci" / "aws_handlers.py"), "--check"]
    policies = sorted(map(str, folder.glob("*.policy.json")))
    yield [str(TOOLS / "python"), "-W", "ignore", str(ROOT / ".ci" / "aws_policies.py"), *templates, *policies]
    yield from ([str(TOOLS / "statelint"), str(path)] for path in sorted(folder.glob("*.machine.json")))


def main() -> int:
    files: dict[str, Any] = rendered()
    lock = "".join((ROOT / name).read_text() for name in LINTERS)
    passed = DONE / hashlib.sha256(json.dumps([lock, IGNORED, files], sort_keys=True).encode()).hexdigest()
    if passed.exists():
        return 0
    with tempfile.TemporaryDirectory() as folder:
        for name, text in files.items():
            (Path(folder) / name).write_text(text)
        wrong = [command for command in commands(Path(folder)) if subprocess.run(command, check=False).returncode]
    if not wrong:
        DONE.mkdir(parents=True, exist_ok=True)
        passed.touch()
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
