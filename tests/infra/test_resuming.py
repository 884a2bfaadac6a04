"""A deployment that is cut off at any call, or undone by CloudFormation, is finished by the same command again."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from chalicelib.domain import keys
from chalicelib.errors import DataTooNew, DstackError, Refused
from chalicelib.store.memory import MemoryStore
from chalicelib.store.port import Delete, Put, Record
from chalicelib.store.record_form import FORM, check_form, form_of
from infra import command
from infra.account import AwsAccount
from infra.artefacts import Artefact
from infra.deploy import Deployment, DeployReport
from infra.destroy import refuse_with_machines, remove, retained
from infra.functions import ALONE, FUNCTIONS, reserved
from infra.stacks import Stack
from infra.stateless import Choices
from tests.infra.account import BUCKET, LIMIT, Account, StackOf

DATA, MAIN, ALARM = "dstack-dev-data", "dstack-dev", "dstack-dev-spending"


@dataclass
class Deployer:
    """Somebody who runs the command until it ends well. Each run begins with nothing but the account."""

    account: Account
    folder: Path
    agrees: bool = True
    breaks_off: bool = False
    lines: list[str] = field(default_factory=list)
    begun: int = 0  # how often the first start was reached
    set: dict[str, str] = field(default_factory=dict)  # parameters that they choose
    tags: dict[str, str] = field(default_factory=dict)
    partition: str = "aws"

    def run(self, release: str = "1") -> DeployReport:
        report = DeployReport("dev")
        where = AwsAccount("1", "here", f"arn:{self.partition}:iam::1:user/me")
        one = _Deployment(
            "dev",
            where,
            self.lines.append,
            self._confirm,
            report,
            dict(self.set),
            dict(self.tags),
            poll=0,
            clients=self.account,
            store=lambda table: self.account.records,
            deployer=self,
        )
        code = self.folder / f"{release}.zip"
        code.write_text(release)
        one._refuse_beside_chalice()
        one._refuse_newer_records(one._stack("-data"))
        one.make({"clouds": Artefact("clouds", code, release, 1, 1)}, b"agent", self.template)
        return report

    def _confirm(self, question: str) -> bool:
        if self.breaks_off:
            raise KeyboardInterrupt
        return self.agrees

    def template(self, chosen: Choices) -> dict[str, Any]:
        return {
            "Parameters": dict.fromkeys(("InstallId", "Stream", "BastionSubnets", "BastionSecurityGroups")),
            "Code": [key for _, key in chosen.code.values()],
            "Functions": [f"{MAIN}-{function.name}" for function in FUNCTIONS],
            "Reserved": {f"{MAIN}-{name}": number for name, number in chosen.reserved.items()},
            "Bucket": chosen.bucket,
        }


@dataclass
class _Deployment(Deployment):
    deployer: Deployer | None = None

    def _first_start(self) -> None:
        """Of a control plane, which the emulator has."""
        assert self.deployer is not None
        self.deployer.begun += 1


def check_complete(account: Account, release: str = "1") -> None:
    assert account.stacks.keys() == {DATA, MAIN, ALARM}
    assert all(stack.status in ("CREATE_COMPLETE", "UPDATE_COMPLETE") for stack in account.stacks.values())
    assert account.stacks[MAIN].template["Code"] == [f"deploy/clouds-{release}.zip"]
    assert account.stacks[MAIN].parameters["InstallId"]
    assert account.secrets.keys() == {"/dstack-dev/install-key", "/dstack-dev/master-key"}
    assert account.objects["agent/agent.pyz"] == b"agent"
    assert account.invoked[-1] == f"{MAIN}-refresh_catalog", "nothing is bought without offers"
    wanted = {f"{MAIN}-{name}": number for name, number in reserved(LIMIT).items()}
    assert account.reserved == wanted and wanted, "the same, however often it is deployed"


def calls_of(folder: Path, *, upgrade: bool) -> int:
    deployer = Deployer(Account(), folder)
    deployer.run()
    first = len(deployer.account.calls)
    if upgrade:
        deployer.run("2")
    return len(deployer.account.calls) - first if upgrade else first


@pytest.mark.slow
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
        try:
            deployer.run(release)
        except DstackError as broken:
            assert broken.hint, account.calls[-1]
        else:
            assert any("but the alarm" in line for line in deployer.lines), account.calls[-1]
        account.cut, made = 0, dict(account.secrets)
        deployer.run(release)
        check_complete(account, release)
        assert account.secrets.items() >= made.items() and account.secrets.items() >= keys.items(), (
            "no key is made anew"
        )
        assert deployer.run(release).changes == [], "nothing is left to do"


def test_an_earlier_release_is_refused_before_anything_is_changed(tmp_path: Path) -> None:
    deployer = Deployer(Account(), tmp_path)
    deployer.run()
    account = deployer.account
    assert form_of(account.records) == FORM, "a release after this one knows what it finds"
    check_form(account.records, "")
    newer = Record(keys.renewal(FORM + 1), 1, b"{}")
    account.records.commit([Put(newer, expect=0)])
    stacks, objects, account.calls = templates(account), dict(account.objects), []
    with pytest.raises(DataTooNew, match=f"form of its records is {FORM + 1}, .* knows up to {FORM}") as refused:
        deployer.run("0")
    assert "python -m infra.restore dev --at" in refused.value.hint
    assert (templates(account), account.objects, account.changes) == (stacks, objects, {})
    assert all(call.partition(".")[2].startswith(("get_", "describe_")) for call in account.calls), account.calls
    account.records.commit([Delete(newer.key)])  # as `infra.restore` does for a moment before the upgrade
    deployer.run("0")
    check_complete(account, "0")


def templates(account: Account) -> Any:
    return {name: deepcopy((stack.status, stack.template, stack.parameters)) for name, stack in account.stacks.items()}


def test_a_stage_from_before_forms_is_upgraded(tmp_path: Path) -> None:
    deployer = Deployer(Account(), tmp_path)
    deployer.run()
    deployer.account.records = MemoryStore()
    deployer.run("2")
    assert form_of(deployer.account.records) == FORM


@pytest.mark.parametrize("fails", [DATA, MAIN])
def test_what_cloudformation_undid_is_made_again(tmp_path: Path, fails: str) -> None:
    deployer = Deployer(Account(fails={fails}), tmp_path)
    with pytest.raises(Refused, match=f"{fails} could not be changed"):
        deployer.run()
    deployer.run()
    check_complete(deployer.account)
    deployer.account.fails = {MAIN}
    with pytest.raises(Refused):
        deployer.run("2")
    assert deployer.run("2").changes == [f"{MAIN}: Add Any"]
    check_complete(deployer.account, "2")


def test_an_account_that_may_have_no_budget_has_everything_else(tmp_path: Path) -> None:
    """Such as one that is younger than a day. Tomorrow's deployment adds it."""
    deployer = Deployer(Account(fails={ALARM}), tmp_path)
    report = deployer.run()
    assert deployer.begun == 1 and f"{MAIN}: Add Any" in report.changes
    assert deployer.account.stacks[MAIN].status == "CREATE_COMPLETE"
    assert deployer.account.stacks[ALARM].status == "ROLLBACK_COMPLETE"
    (line,) = (line for line in deployer.lines if "but the alarm" in line)
    assert "younger than a day" in line and "--set SpendingAlarm=0" in line
    assert deployer.run().changes == [f"{ALARM}: Add Any"]
    check_complete(deployer.account)


def test_an_alarm_that_was_chosen_stays_as_it_was_chosen(tmp_path: Path) -> None:
    """In an earlier release, too, whose main stack had it."""
    deployer = Deployer(Account(), tmp_path, set={"SpendingAlarm": "7"})
    deployer.run()
    assert deployer.account.stacks[ALARM].parameters == {"SpendingAlarm": "7"}
    deployer.set = {}
    assert deployer.run().changes == []
    assert "more than $7 a day" in deployer.lines[-1] or any("$7 a day" in line for line in deployer.lines)
    del deployer.account.stacks[ALARM]
    deployer.account.stacks[MAIN].parameters |= {"SpendingAlarm": "5", "SpendingEmail": "a@example.com"}
    deployer.run("2")
    assert deployer.account.stacks[ALARM].parameters == {"SpendingAlarm": "5", "SpendingEmail": "a@example.com"}


def test_a_stage_that_is_older_than_the_region_in_its_buckets_name_keeps_its_bucket(tmp_path: Path) -> None:
    deployer = Deployer(Account(), tmp_path)
    deployer.run()
    assert "BucketName" not in deployer.account.stacks[DATA].parameters
    assert deployer.account.stacks[MAIN].template["Bucket"] == BUCKET
    deployer.account.bucket = "dstack-dev-1"
    assert deployer.run("2").changes == [f"{DATA}: Add Any", f"{MAIN}: Add Any"]
    assert deployer.account.stacks[DATA].parameters["BucketName"] == "dstack-dev-1"
    assert deployer.account.stacks[MAIN].template["Bucket"] == "dstack-dev-1"
    assert deployer.run("2").changes == []


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
    check_complete(deployer.account, "2")


def test_a_removal_is_shown_and_asked_for() -> None:
    account, lines, here = Account({MAIN: StackOf("CREATE_COMPLETE")}), list[str](), AwsAccount("1", "here", "me")
    main = Stack(account("cloudformation"), MAIN, lines.append, 0)
    with pytest.raises(command.Declined):
        remove(main, here, lines.append, lambda _: False)
    assert lines == ["  - Api  AWS::X::Y"] and MAIN in account.stacks
    remove(main, here, lines.append, lambda _: True)
    assert lines[1:] == ["  - Api  AWS::X::Y", f"{MAIN} is deleted."] and account.stacks == {}


def test_a_stage_with_machines_is_not_removed() -> None:
    refuse_with_machines("dev", [])
    with pytest.raises(Refused, match=r"dev still has m0, .*, m19 and 5 more") as refused:
        refuse_with_machines("dev", [f"m{number}" for number in range(25)])
    assert "--leave-machines" in refused.value.hint


def test_who_says_no_is_told_what_stays_as_it_was(tmp_path: Path) -> None:
    deployer = Deployer(Account(), tmp_path)
    deployer.run()
    deployer.agrees = False
    with pytest.raises(command.Declined, match="dstack-dev is left as it was"):
        deployer.run("2")
    check_complete(deployer.account)
    assert deployer.begun == 1


def test_who_breaks_off_instead_of_an_answer_leaves_nothing_proposed(tmp_path: Path) -> None:
    deployer = Deployer(Account(), tmp_path, breaks_off=True)
    with pytest.raises(KeyboardInterrupt):
        deployer.run()
    assert deployer.account.changes == {} and deployer.account.stacks[DATA].status == "REVIEW_IN_PROGRESS"
    assert retained(Stack(deployer.account("cloudformation"), DATA, deployer.lines.append, 0), "dev") == []
    assert deployer.account.stacks == {}, "an empty stack isn't kept"


def test_what_is_kept_is_named(tmp_path: Path) -> None:
    deployer = Deployer(Account(), tmp_path)
    deployer.run()
    data = Stack(deployer.account("cloudformation"), DATA, deployer.lines.append, 0)
    assert retained(data, "dev") == [DATA, "table", BUCKET, "/dstack-dev"] and DATA in deployer.account.stacks
    for status in ("ROLLBACK_COMPLETE", "REVIEW_IN_PROGRESS"):
        deployer.account.stacks = {DATA: StackOf(status)}
        assert retained(data, "dev") == [] and deployer.account.stacks == {}
    assert retained(data, "dev") == []


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
    check_complete(account)
