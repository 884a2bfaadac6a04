"""The journal of a process's commits: nothing missed, nothing of other projects, and an honest answer to who comes back
too late."""

from __future__ import annotations

import threading

from chalicelib.domain.instances import InstanceStatus
from chalicelib.domain.noun import Noun
from chalicelib.store import nouns
from chalicelib.store.commit_journal import CommitJournal
from tests.world import nouns as b
from tests.world.nouns import PROJECT


def wrote(journal: CommitJournal, *found: Noun) -> set[str]:
    return journal.wrote([nouns.put(noun) for noun in found])


def units(journal: CommitJournal, mark: str, *projects: str) -> frozenset[str] | None:
    found = journal.since(mark, projects or (PROJECT,))
    return None if found is None else found.units


def test_a_job_touches_its_run_and_a_machine_its_fleet() -> None:
    journal, run, pool = CommitJournal("boot"), b.run("train"), b.fleet("pool")
    before = journal.mark()
    assert wrote(journal, b.job(run), b.machine(0, pool, status=InstanceStatus.idle))
    assert units(journal, before) == {f"run/{run.id}", f"instance/{b.machine(0, pool).id}", f"fleet/{pool.id}"}
    assert not wrote(journal, b.presence_of(b.machine(0, pool))) and units(journal, journal.mark()) == set()


def test_a_follower_is_told_of_its_projects_only() -> None:
    journal, run = CommitJournal("boot"), b.run("train")
    before = journal.mark()
    assert wrote(journal, run, b.run("other").with_(project_id="elsewhere")) == {PROJECT, "elsewhere"}
    assert units(journal, before) == {f"run/{run.id}"}
    found = journal.since(before, ["nothing"])
    assert found is not None and (found.units, found.mark) == (frozenset(), before)


def test_who_is_too_far_behind_or_comes_from_another_start_reads_anew() -> None:
    journal = CommitJournal("boot", length=4)
    before = journal.mark()
    for number in range(3):
        wrote(journal, b.run(f"run-{number}").with_(project_id="elsewhere"))
    found = journal.since(before, [PROJECT])
    assert found is not None and found.mark == journal.mark() != before  # it moves on before its place is forgotten
    for number in range(3):
        wrote(journal, b.run(f"run-{number}"))
    assert units(journal, before) is None and units(journal, found.mark) == {
        f"run/{b.run(f'run-{n}').id}" for n in range(3)
    }
    for strange in ("other.1", "boot.999", "boot.x", "boot.²", "boot.١", "", "1"):
        assert units(journal, strange) is None


def test_commits_of_many_threads_reach_a_follower_each() -> None:
    journal = CommitJournal("boot")
    threads = [
        threading.Thread(target=lambda of=of: [wrote(journal, b.run(f"run-{of}-{n}")) for n in range(50)])
        for of in range(4)
    ]
    mark, seen = journal.mark(), set[str]()
    for thread in threads:
        thread.start()
    while len(seen) < 200 and any(thread.is_alive() for thread in threads):
        found = journal.since(mark, [PROJECT])
        assert found is not None
        mark, seen = found.mark, seen | found.units
    for thread in threads:
        thread.join()
    last = journal.since(mark, [PROJECT])
    assert last is not None and len(seen | last.units) == 200
