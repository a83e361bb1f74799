"""What one stage puts out as input of the next: in which unit it is, and in an order that does not depend on lanes."""

from __future__ import annotations

import pickle
import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from evenflow.errors import OperatorError
from evenflow.lane import LaneConfig, LaneStage, LaneWorker, chained
from evenflow.lane.feeding import PRODUCER, feed_of
from evenflow.lane.loading import rows_of
from evenflow.lane.messages import Adopt, BlockPart, Done, EpochInput, Release, Released, SlotToLoad, Work
from evenflow.operators import HASH, Apply, SlotOperator, Stage
from evenflow.operators.key_hash import hashes_of
from evenflow.state import Advance, Block, Folder, Segment, block_name, work_name
from tests.engine.calculations import SCHEMA
from tests.engine.two_stages import SEQUENCES, TOTALS

SLOTS = 4
STAGES = chained([TOTALS, SEQUENCES], SLOTS)


def put_out(rows: list[tuple[int, int]]) -> pa.Table:
    return pa.table({"closed": [value for _, value in rows], "n": [n for n, _ in rows], "total": [0] * len(rows)})


def test_rows_are_in_the_unit_of_their_key_and_say_who_has_put_them_out() -> None:
    output, producers = put_out([(n, at) for at, n in enumerate([5, 6, 5, 7, 5])]), np.array([3, 1, 1, 2, 3])
    feed = feed_of(output, producers, STAGES[1], lane=2)
    (segment,) = feed.segments
    units = np.repeat(segment.slots, segment.counts)
    assert feed.rows.column_names == ["n", "closed", PRODUCER], "what the stage needs, and no more"
    assert units.tolist() == (hashes_of(feed.rows, ("n",)) % SLOTS + SLOTS).tolist()
    of_five = [row for row in feed.rows.to_pylist() if row["n"] == 5]
    assert [(row[PRODUCER], row["closed"]) for row in of_five] == [(1, 2), (3, 0), (3, 4)]
    assert (segment.lane, segment.rows) == (2, 5)


def test_the_hash_goes_along_if_the_stage_needs_it() -> None:
    stages = chained([SEQUENCES, TOTALS], SLOTS)
    rows = pa.table({"key": pa.array(["a", "b", "a"]), "value": [1, 2, 3]})
    named = chained([SEQUENCES, type(TOTALS)(TOTALS.operator, rows.schema, ("key",))], SLOTS)[1]
    for target, given in ((stages[1], pa.table({"key": [1, 2], "value": [1, 2]})), (named, rows)):
        feed = feed_of(given, np.zeros(given.num_rows, np.int64), target, lane=0)
        assert (HASH in feed.rows.column_names) == target.needs_hash


@pytest.mark.parametrize("seed", range(20))
def test_the_order_does_not_depend_on_which_lane_has_put_out_what(tmp_path: Path, seed: int) -> None:
    """The same rows of the same units, put out by any number of lanes, committed in any order."""
    rng, folder = random.Random(seed), Folder.at(str(tmp_path), durable=False)
    rows = [(rng.randrange(5), at) for at in range(60)]
    producers = sorted(rng.randrange(SLOTS) for _ in rows)
    expected = None
    for life in range(3):
        lane_of = [rng.randrange(life + 1) for _ in range(SLOTS)]
        blocks = []
        for lane in rng.sample(range(life + 1), life + 1):
            mine = [at for at, producer in enumerate(producers) if lane_of[producer] == lane]
            if mine:
                feed = feed_of(put_out([rows[at] for at in mine]), np.array(producers)[mine], STAGES[1], lane)
                (file,) = folder.write_tables(work_name(0, lane, f"a{life}"), [feed.rows])
                blocks.append(feed.block(file))
        parts = [BlockPart(block.file, segment) for block in blocks for segment in block.segments]
        found, units = rows_of(folder, parts, STAGES[1])
        seen = [*zip(units.tolist(), found["n"].to_pylist(), found["closed"].to_pylist(), strict=True)]
        assert expected in (None, seen)
        expected = seen


class Refusing(SlotOperator):
    """Code of a user who likes no row."""

    output = SEQUENCES.operator.output_schema(SEQUENCES.schema, SEQUENCES.keys)

    def init(self) -> dict[int, int]:
        return {}

    def process(self, state: dict[int, int], rows: Any) -> tuple[Any, pa.Table]:
        raise ValueError(f"not these {rows.num_rows} on {len(state)}")


class TestLane:
    """A lane that holds units of both stages."""

    def lane(self, place: Path, stages: tuple[LaneStage, ...] = STAGES) -> LaneWorker:
        worker = LaneWorker(LaneConfig(1, str(place), stages), "a", Folder.at(str(place), durable=False))
        worker.handle(Adopt(tuple(SlotToLoad(unit, -1) for unit in range(2 * SLOTS))))
        while worker.is_moving_state:
            worker.step()
        return worker

    def fed(self, worker: LaneWorker) -> Done:
        rows = pa.table([pa.array([1, 1, 5]), pa.array([10, 20, 30])], schema=SCHEMA)
        file = worker.folder.write_table(block_name(0, "b", 0), rows)
        part = BlockPart(file, Segment(1, 0, 3, (1,), (3,)))
        (done,) = worker.handle(Work(0, (Advance(-1, 0, tuple(range(SLOTS))),), (EpochInput(0, (part,)),)))
        assert isinstance(done, Done)
        return done

    def test_a_stage_that_feeds_another_puts_nothing_out_for_the_sink(self, tmp_path: Path) -> None:
        done = self.fed(self.lane(tmp_path))
        assert done.commit.outputs == ()
        ((epoch, block),) = done.commit.feeds
        assert (epoch, sum(segment.rows for segment in block.segments)) == (0, 2)
        assert {changes.file.name for changes in done.commit.changes} == {block.file.name}, "one file"
        assert set(block.segments[0].slots) <= set(range(SLOTS, 2 * SLOTS))

    def test_the_next_stage_folds_it_in_the_same_epoch(self, tmp_path: Path) -> None:
        worker = self.lane(tmp_path)
        ((_, block),) = self.fed(worker).commit.feeds
        done = self.folded(worker, block)
        ((_, file),) = done.commit.outputs
        rows = worker.folder.read_table(file).to_pylist()
        assert {row["n"]: row["values"] for row in rows} == {2: [20], 1: [30]}
        assert done.commit.feeds == ()
        assert set(done.loads[0].load.slots) == {1, *block.segments[0].slots}, "both stages have state"

    def folded(self, worker: LaneWorker, block: Block) -> Done:
        parts = tuple(BlockPart(block.file, segment) for segment in block.segments)
        advance = Advance(-1, 0, tuple(range(SLOTS, 2 * SLOTS)))
        (done,) = worker.handle(Work(0, (advance,), (EpochInput(0, parts),)))
        assert isinstance(done, Done)
        return done

    def test_an_error_of_an_operator_says_in_which_stage_and_epoch(self, tmp_path: Path) -> None:
        stages = chained([TOTALS, Stage(Apply(Refusing()), SEQUENCES.schema, SEQUENCES.keys)], SLOTS)
        worker = self.lane(tmp_path, stages)
        ((_, block),) = self.fed(worker).commit.feeds
        with pytest.raises(
            OperatorError, match=r"Refusing, stage 1 \(by n\), slot \d, epoch 0: ValueError: not these"
        ) as caught:
            self.folded(worker, block)
        copy = pickle.loads(pickle.dumps(caught.value))  # noqa: S301 - our own
        assert str(copy) == str(caught.value), "it goes to the driver as it is"

    def test_units_of_both_stages_are_handed_off_in_one_file(self, tmp_path: Path) -> None:
        worker = self.lane(tmp_path)
        ((_, block),) = self.fed(worker).commit.feeds
        self.folded(worker, block)
        worker.handle(Release((1, block.segments[0].slots[0])))
        answers = [answer for _ in range(4) for answer in worker.step()]
        (released,) = answers
        assert isinstance(released, Released)
        refs = dict(released.handoffs)
        assert {ref.rows > 0 for ref in refs.values()} == {True}
        assert len({ref.file.name for ref in refs.values()}) == 1
        other = LaneWorker(LaneConfig(2, str(tmp_path), STAGES), "b", worker.folder)
        other.handle(Adopt(tuple(SlotToLoad(unit, 0, ref) for unit, ref in refs.items())))
        while other.is_moving_state:
            other.step()
        assert other.holding.versions == dict.fromkeys(refs, 0)
        assert [held.resident.slot_rows().sum() > 0 for held in other.holding.stages] == [True, True]
