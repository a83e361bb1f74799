"""Two drivers, or more, on one checkpoint: the last to start goes on, and nothing is lost or counts twice.

Every step of one against every step of the start of the other, then random orders of three; see `interleaving`.
"""

from __future__ import annotations

import itertools
import os
import random
import socket
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import pytest

from evenflow.errors import CheckpointMismatchError, DamagedFileError, TakenOverError
from evenflow.model import Contents
from evenflow.state import Checkpoint, files, work_name
from tests.seeds import seed_of_run
from tests.state.interleaving import FOREVER, Onlooker, Play, World
from tests.state.places import OFTEN, identity
from tests.state.test_checkpoint import all_files, lane_commit, rebuilt, record, reopened, rows_of, run, started

SEED = seed_of_run("EVENFLOW_TAKEOVERS")


@contextmanager
def on(play: Play) -> Iterator[Play]:
    """Let everybody work in the world of a play."""
    with mock.patch.object(files, "storage_at", play.world.storage):
        yield play


@pytest.fixture(scope="module")
def begun() -> Play:
    """A world in which a driver has taken two epochs and is gone."""
    with on(Play()) as play:
        play.enter(batch=3, last=1).take()
        assert play.ends == ["done"]
    return play


def steps_of(play: Play, batch: int, last: int, *, sweeps: bool = True) -> int:
    """Return how many steps a driver takes that is alone."""
    with on(play.copy()) as alone:
        whole = alone.enter(batch, last, sweeps=sweeps)
        whole.take()
        assert alone.ends == ["done"]
        return whole.steps


def test_every_step_against_every_step_of_a_start(begun: Play) -> None:
    """The old one stops at any step, the new one at any step of its start; the old one wakes and goes on, then the new.

    At last the new one starts and goes on to its end while the old one hangs.
    """
    start, steps = (steps_of(begun, batch=1, last=last) for last in (-1, 2))
    # It was 30 when slots had files of their own: a commit is one data file per lane and one record since.
    assert steps - start >= 25, "the story should be worth telling"
    ends: Counter[tuple[str | None, ...]] = Counter()
    for old_steps, new_steps in itertools.product(range(start, steps), [*range(start), FOREVER]):
        with on(begun.copy()) as play:
            old = play.enter(batch=1, last=2)
            old.take(old_steps)
            new = play.enter(batch=2, last=3)
            new.take(new_steps)
            old.take()
            new.take()
            ends[tuple(play.ends)] += 1
            play.check()
    assert ends["taken over", "done"] > 250
    assert ends["taken over", "conflict"] + ends["conflict", "done"] < 10, "Spark hardly ever notices"
    assert set(ends) <= {("taken over", "done"), ("taken over", "conflict"), ("conflict", "done"), ("done", "done")}


def test_two_start_at_the_same_moment(begun: Play) -> None:
    """Each at any step up to where the other has read everything: in the end one of them has it."""
    claimed = 22
    for first_steps, second_steps in itertools.product(range(0, claimed, 2), range(claimed)):
        with on(begun.copy()) as play:
            first, second = (play.enter(batch=batch, last=2) for batch in (1, 2))
            first.take(first_steps)
            second.take(second_steps)
            first.take()
            second.take()
            assert sorted(map(str, play.ends)) in (["done", "done"], ["done", "taken over"])
            play.check()


def test_a_late_record_that_one_has_read_and_a_later_one_has_not(begun: Play) -> None:
    """The second run counts the epoch, and must not tell Spark so: the third, which has the checkpoint, does not."""
    start = steps_of(begun, batch=1, last=-1, sweeps=False)
    for second_steps, third_steps in itertools.product(range(5, start), range(start - 8, start)):
        with on(begun.copy()) as play:
            first, second, third = (play.enter(batch=batch, last=2, sweeps=False) for batch in (1, 2, 3))
            first.take(start + 1)
            assert max(play.world.offsets) == 2  # Spark has planned the epoch; its record is what comes next
            second.take(second_steps)
            third.take(third_steps)
            first.take(1)
            second.take()
            third.take()
            play.check()


def test_who_only_looks_sees_what_was_there(begun: Play) -> None:
    """At any step, while one who writes goes on to any point: all that was there before, and nothing half done."""
    start, steps = (steps_of(begun, batch=1, last=last) for last in (-1, 3))
    looks = 9
    for look, before, after in itertools.product(range(1, looks), range(start, steps, 4), (4, 12, FOREVER)):
        with on(begun.copy()) as play:
            writer = play.enter(batch=1, last=3)
            writer.take(before)
            then = [*writer.versions, *writer.acknowledged.values()]
            onlooker = Onlooker(play.world)
            onlooker.take(look)
            writer.take(after)
            onlooker.take()
            writer.take()
            assert (onlooker.end, writer.end) == ("done", "done")
            seen = onlooker.seen
            now = [*seen.slot_versions, seen.last_accepted, seen.last_published]
            assert all(one >= other for one, other in zip(now, then, strict=True))


@pytest.mark.parametrize("seed", [SEED], ids="EVENFLOW_TAKEOVERS={}".format)
def test_any_order_of_three_drivers_some_of_which_are_killed(seed: int) -> None:
    """Also where an exclusive creation is a look and then a write, as in object stores."""
    rng = random.Random(seed)
    ends: Counter[str] = Counter()
    for _ in range(120):
        with on(Play(World(atomic=rng.random() < 0.5))) as play:
            for _ in range(3):
                play.enter(batch=rng.randint(1, 3), last=rng.randint(1, 4)).take(rng.randint(0, 100))
                for driver in rng.choices(play.drivers, k=3):
                    driver.take(rng.randint(1, 30))
            for driver in play.drivers:
                if rng.random() < 0.3:
                    driver.kill()
            for driver in rng.sample(play.drivers, 3):
                driver.take()
            ends.update(map(str, play.ends))
            play.check()
    assert set(ends) >= {"done", "killed", "taken over"}


# --- one thing at a time -----------------------------------------------------------------------------------------


def test_what_a_killed_start_left_of_its_claim_is_removed_by_the_next(tmp_path: Path) -> None:
    started(tmp_path)
    left = tmp_path / "evenflow" / "runs" / "000002-ffffffff.json.dead.tmp"
    left.write_text("{")
    started(tmp_path)
    assert not left.exists()


def test_a_start_that_is_taken_for_dead_while_it_claims_says_who_has_the_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The later one finds half a claim, removes it, and there is nothing left to be renamed."""
    replace = Path.replace
    others: list[Checkpoint] = []

    def replace_late(self: Path, target: Path) -> Path:
        if target.parent.name == "runs" and not others:
            others.append(Checkpoint.open(str(tmp_path), identity(), durable=False))
            others[0].take_over()
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", replace_late)
    with pytest.raises(TakenOverError, match="taken over by another run of its query"):
        started(tmp_path)
    run(others[0], range(2))
    assert others[0].recover().last_accepted == 1


def test_the_last_to_start_goes_on(tmp_path: Path) -> None:
    first = started(tmp_path)
    run(first, range(2))
    second = started(tmp_path)
    steps: list[Callable[[], object]] = [
        lambda: first.accept(record(first, 2)),
        lambda: first.publish(1),
        first.sweep_orphans,
        first.refuse_if_taken_over,
    ]
    for step in steps:
        with pytest.raises(TakenOverError) as caught:
            step()
    words = f"{tmp_path}/evenflow was taken over by another run of its query (process {os.getpid()} on "
    assert words + socket.gethostname() in str(caught.value)
    assert " UTC)" in str(caught.value)
    assert "see that the query is started in one place only" in str(caught.value)
    assert second.recover().last_accepted == 1
    run(second, [2, 3])
    second.publish(3)
    assert [rebuilt(reopened(tmp_path), slot) for slot in range(4)] == [[0, 1, 2, 3]] * 4


def test_what_comes_too_late_does_not_count(tmp_path: Path) -> None:
    first = started(tmp_path)
    run(first, [0])
    block = record(first, 1, attempt="late")
    done = lane_commit(first, 0, 0, {0}, attempt="late")
    second = started(tmp_path)
    with pytest.raises(TakenOverError):
        first.accept(block)
    assert not reopened(tmp_path).has_batch(1)
    second.sweep_orphans()
    assert not second.folder.exists(block.blocks[0].file.name)
    second.accept(record(second, 1, attempt="again"))
    with pytest.raises(TakenOverError):
        first.sweep_orphans()
    for name in (second.recover().pending[0].blocks[0].file.name, *second.recover().ledger.needed()):
        assert second.folder.exists(name)
    assert not second.folder.exists(done.changes[0].file.name)
    assert [pending.blocks[0].file.name for pending in reopened(tmp_path).recover().pending] == [
        second.recover().pending[0].blocks[0].file.name
    ]


def test_a_run_leaves_one_claim_and_its_own_records(tmp_path: Path) -> None:
    for epoch in range(4):
        checkpoint = started(tmp_path)
        checkpoint.sweep_orphans()
        run(checkpoint, [epoch])
        checkpoint.publish(epoch)
    (tmp_path / "evenflow" / "runs" / "000001-0123abcd.json.ff.tmp").write_text("half a claim")
    checkpoint = started(tmp_path)
    checkpoint.sweep_orphans()
    records = [name for name in all_files(tmp_path) if name.endswith((".json", ".tmp")) and "identity" not in name]
    assert len({name[-20:] for name in records}) == 1, records
    assert sorted(Path(name).parent.name for name in records) == ["base", "epochs", "published", "runs"]
    assert "000005-" in records[0]


def test_a_start_that_was_killed_is_passed_over(tmp_path: Path) -> None:
    run(started(tmp_path), range(2))
    begun = started(tmp_path)
    begun.accept(record(begun, 2))
    for base in (tmp_path / "evenflow" / "base").glob("*-000002-*.json"):  # which is what it writes last
        base.unlink()
    for epoch in (tmp_path / "evenflow" / "epochs").glob("000000000002-*.json"):
        epoch.unlink()
    assert reopened(tmp_path).recover().last_accepted == 1
    assert [rebuilt(started(tmp_path), slot) for slot in range(4)] == [[0, 1]] * 4


def test_a_run_without_its_base_is_damaged(tmp_path: Path) -> None:
    run(started(tmp_path), [0])
    run(started(tmp_path), [1])
    for base in (tmp_path / "evenflow" / "base").glob("*-000002-*.json"):
        base.unlink()
    with pytest.raises(DamagedFileError, match=r"base/ is damaged: it holds no record of run 000002-"):
        reopened(tmp_path)


def test_claims_that_were_removed_by_hand(tmp_path: Path) -> None:
    started(tmp_path)
    checkpoint = started(tmp_path)
    run(checkpoint, [0])
    for claim in (tmp_path / "evenflow" / "runs").iterdir():
        claim.unlink()
    with pytest.raises(TakenOverError, match=r"runs/000002-\w+\.json, is gone, and nobody else .* start it again"):
        checkpoint.accept(record(checkpoint, 1))
    again = started(tmp_path)  # its number is above those in the names of the records
    assert [rebuilt(again, slot) for slot in range(4)] == [[0]] * 4
    run(again, [2])
    assert reopened(tmp_path).recover().last_accepted == 2


def test_another_query_that_was_created_at_the_same_moment(tmp_path: Path) -> None:
    """Both have found nothing there; the one whose identity is there in the end goes on."""
    checkpoint = Checkpoint.open(str(tmp_path), identity(), durable=False)
    other = identity(contents=Contents("Other"))
    checkpoint.folder.write_json("identity.json", other)
    with pytest.raises(CheckpointMismatchError, match="operator"):
        checkpoint.take_over()


def test_files_that_a_driver_of_before_writes_later_are_swept_as_the_query_runs(tmp_path: Path) -> None:
    first, second = started(tmp_path), started(tmp_path, options=OFTEN)
    with pytest.raises(TakenOverError):
        first.accept(record(first, 0, attempt="late"))
    late = [first.folder.write_table(work_name(epoch, 0, "late"), rows_of([])).name for epoch in range(2)]
    for epoch in range(3):
        run(second, [epoch])
        second.publish(epoch)
        second.sweep()
    assert not [name for name in all_files(tmp_path) if name.removeprefix("evenflow/") in late or "-000001-" in name]
