"""A deployment that is cut off at any call, or undone by CloudFormation, is finished by the same command again."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from chalicelib.errors import DstackError, Refused
from infra import command
from infra.account import AwsAccount
from infra.artefacts import Artefact
from infra.deploy import Deployment, DeployReport
from infra.destroy import kept, nobody_left_alone, remove
from infra.functions import ALONE, BOUNDED, FUNCTIONS
from infra.stacks import Stack
from infra.stateless import Code
from tests.infra.account import LIMIT, Account, StackOf

DATA, MAIN = "dstack-dev-data", "dstack-dev"


@dataclass
class Deployer:
    """Somebody who runs the command until it ends well. Each run begins with nothing but the account."""

    account: Account
    folder: Path
    agrees: bool = True
    breaks_off: bool = False
    said: list[str] = field(default_factory=list)
    begun: int = 0  # how often the first start was reached

    def run(self, release: str = "1") -> DeployReport:
        report = DeployReport("dev")
        where = AwsAccount("1", "here", "me")
        one = _Deployment(
            "dev", where, self.said.append, self._asked, report, poll=0, clients=self.account, deployer=self
        )
        code = self.folder / f"{release}.zip"
        code.write_text(release)
        one._not_chalices()
        one.make({"clouds": Artefact("clouds", code, release, 1, 1)}, b"agent", self.template)
        return report

    def _asked(self, question: str) -> bool:
        if self.breaks_off:
            raise KeyboardInterrupt
        return self.agrees

    def template(self, code: Code, at_once: int) -> dict[str, Any]:
        return {
            "Parameters": {"InstallId": {}, "Stream": {}},
            "Code": [key for _, key in code.values()],
            "Functions": [f"{MAIN}-{function.name}" for function in FUNCTIONS],
            "Reserved": {f"{MAIN}-{function.name}": at_once for function in BOUNDED},
        }


@dataclass
class _Deployment(Deployment):
    deployer: Deployer | None = None

    def _first_start(self) -> None:
        """Of a control plane, which the emulator has."""
        assert self.deployer is not None
        self.deployer.begun += 1


def whole(account: Account, release: str = "1") -> None:
    assert {name: stack.status for name, stack in account.stacks.items()}.keys() == {DATA, MAIN}
    assert all(stack.status in ("CREATE_COMPLETE", "UPDATE_COMPLETE") for stack in account.stacks.values())
    assert account.stacks[MAIN].template["Code"] == [f"deploy/clouds-{release}.zip"]
    assert account.stacks[MAIN].parameters["InstallId"]
    assert account.secrets.keys() == {"/dstack-dev/install-key", "/dstack-dev/master-key"}
    assert account.objects["agent/agent.pyz"] == b"agent"
    assert account.invoked[-1] == f"{MAIN}-refresh_catalog", "nothing is bought without offers"
    assert set(account.reserved.values()) == {LIMIT // 10}, "a tenth, however often it is deployed"


def calls_of(folder: Path, *, upgrade: bool) -> int:
    deployer = Deployer(Account(), folder)
    deployer.run()
    first = len(deployer.account.calls)
    if upgrade:
        deployer.run("2")
    return len(deployer.account.calls) - first if upgrade else first


@pytest.mark.parametrize("reached", [False, True], ids=["not reached", "answer lost"])
@pytest.mark.parametrize("upgrade", [False, True], ids=["first", "upgrade"])
def test_whichever_call_is_cut_off_the_next_run_finishes(tmp_path: Path, upgrade: bool, reached: bool) -> None:
    number = calls_of(tmp_path, upgrade=upgrade)
    assert number > 30
    for cut in range(1, number + 1):
        account = Account(reached=reached)
        deployer = Deployer(account, tmp_path)
        release = "2" if upgrade else "1"
        if upgrade:
            deployer.run()
        keys, account.calls, account.cut = dict(account.secrets), [], cut
        with pytest.raises(DstackError) as broken:
            deployer.run(release)
        assert broken.value.hint, account.calls[-1]
        account.cut, made = 0, dict(account.secrets)
        deployer.run(release)
        whole(account, release)
        assert account.secrets.items() >= made.items() and account.secrets.items() >= keys.items(), (
            "no key is made anew"
        )
        assert deployer.run(release).changes == [], "nothing is left to do"


@pytest.mark.parametrize("fails", [DATA, MAIN])
def test_what_cloudformation_undid_is_made_again(tmp_path: Path, fails: str) -> None:
    deployer = Deployer(Account(fails={fails}), tmp_path)
    with pytest.raises(Refused, match=f"{fails} could not be changed"):
        deployer.run()
    deployer.run()
    whole(deployer.account)
    deployer.account.fails = {MAIN}
    with pytest.raises(Refused):
        deployer.run("2")
    assert deployer.run("2").changes == [f"{MAIN}: Add Any"]
    whole(deployer.account, "2")


def test_what_was_uploaded_is_not_again_but_as_new_as_this_deployment(tmp_path: Path) -> None:
    """Somebody else may be deploying something else, and clears what is old."""
    deployer = Deployer(Account(), tmp_path)
    deployer.run()
    account, code = deployer.account, "deploy/clouds-1.zip"
    account.items = [{"pk": {"S": "x"}}]
    account.old, account.calls = {code}, []
    assert deployer.run().changes == [] and code not in account.old and "s3.upload_file" not in account.calls


def test_code_that_nobody_can_be_deploying_any_more_goes(tmp_path: Path) -> None:
    deployer = Deployer(Account(), tmp_path)
    deployer.run()
    deployer.account.old = set(deployer.account.objects)
    deployer.run("2")
    left = {name for name in deployer.account.objects if name.startswith("deploy/") and name.endswith(".zip")}
    assert left == {"deploy/clouds-2.zip"}
    whole(deployer.account, "2")


def test_a_removal_is_shown_and_asked_for() -> None:
    account, said, here = Account({MAIN: StackOf("CREATE_COMPLETE")}), list[str](), AwsAccount("1", "here", "me")
    main = Stack(account("cloudformation"), MAIN, said.append, 0)
    with pytest.raises(command.Declined):
        remove(main, here, said.append, lambda _: False)
    assert said == ["  - Api  AWS::X::Y"] and MAIN in account.stacks
    remove(main, here, said.append, lambda _: True)
    assert said[1:] == ["  - Api  AWS::X::Y", f"{MAIN} is deleted."] and account.stacks == {}


def test_a_stage_with_machines_is_not_removed() -> None:
    nobody_left_alone("dev", [])
    with pytest.raises(Refused, match=r"dev still has m0, .*, m19 and 5 more") as refused:
        nobody_left_alone("dev", [f"m{number}" for number in range(25)])
    assert "--leave-machines" in refused.value.hint


def test_who_says_no_is_told_what_stays_as_it_was(tmp_path: Path) -> None:
    deployer = Deployer(Account(), tmp_path)
    deployer.run()
    deployer.agrees = False
    with pytest.raises(command.Declined, match="dstack-dev is left as it was"):
        deployer.run("2")
    whole(deployer.account)
    assert deployer.begun == 1


def test_who_breaks_off_instead_of_an_answer_leaves_nothing_proposed(tmp_path: Path) -> None:
    deployer = Deployer(Account(), tmp_path, breaks_off=True)
    with pytest.raises(KeyboardInterrupt):
        deployer.run()
    assert deployer.account.changes == {} and deployer.account.stacks[DATA].status == "REVIEW_IN_PROGRESS"
    assert kept(Stack(deployer.account("cloudformation"), DATA, deployer.said.append, 0), "dev") == []
    assert deployer.account.stacks == {}, "an empty stack isn't kept"


def test_what_is_kept_is_named(tmp_path: Path) -> None:
    deployer = Deployer(Account(), tmp_path)
    deployer.run()
    data = Stack(deployer.account("cloudformation"), DATA, deployer.said.append, 0)
    assert kept(data, "dev") == [DATA, "table", "bucket", "/dstack-dev"] and DATA in deployer.account.stacks
    for status in ("ROLLBACK_COMPLETE", "REVIEW_IN_PROGRESS"):
        deployer.account.stacks = {DATA: StackOf(status)}
        assert kept(data, "dev") == [] and deployer.account.stacks == {}
    assert kept(data, "dev") == []


def test_new_keys_are_never_made_for_a_table_that_has_data(tmp_path: Path) -> None:
    deployer = Deployer(Account(), tmp_path)
    deployer.run()
    del deployer.account.secrets["/dstack-dev/master-key"]
    deployer.account.items = [{"pk": {"S": "x"}}]
    with pytest.raises(Refused, match="master-key in Parameter Store are gone"):
        deployer.run()


def test_a_stage_that_chalice_deployed_is_refused_with_the_way_out(tmp_path: Path) -> None:
    """Each schedule would fire twice. Neither takes the other's functions for its own."""
    account = Account()
    deployer = Deployer(account, tmp_path)
    deployer.run()
    account.functions.add(f"{ALONE}-dev-reconcile")
    with pytest.raises(Refused, match="chalice deploy") as refused:
        deployer.run()
    assert "chalice delete --stage dev" in refused.value.hint
    account.functions.remove(f"{ALONE}-dev-reconcile")
    assert deployer.run().changes == []
    whole(account)
