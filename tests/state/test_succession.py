"""Which changes of a query its checkpoint goes along with, and what the others are told."""

from __future__ import annotations

from pathlib import Path

import pytest

from evenflow.errors import CheckpointMismatchError
from evenflow.model import Contents, HeldAggregate
from evenflow.state import Checkpoint
from evenflow.state.succession import differences, is_as_wide, remarks, succeeded
from tests.state.places import identity
from tests.state.test_checkpoint import run, started

TOTAL, COUNT = HeldAggregate("total", "sum(price)", "int32"), HeldAggregate("n", "count()", "")
HELD = Contents("aggregates", aggregates=(TOTAL, COUNT))
OWN = Contents("Sessions", version=2, source="a", inputs=(("price", "int32"),))


@pytest.mark.parametrize(
    ("before", "now", "fits"),
    [
        ("int32", "int32", True),
        ("int32", "int64", True),
        ("int8", "int64", True),
        ("int64", "int32", False),
        ("float", "double", True),
        ("double", "float", False),
        ("int32", "double", False),
        ("decimal128(10, 2)", "decimal128(12, 2)", True),
        ("decimal128(10, 2)", "decimal128(12, 4)", True),
        ("decimal128(10, 2)", "decimal128(10, 4)", False),
        ("decimal128(10, 2)", "decimal128(12, 1)", False),
        ("string", "binary", False),
        ("date32[day]", "timestamp[us]", False),
    ],
)
def test_wider_types(before: str, now: str, fits: bool) -> None:
    assert is_as_wide(before, now) is fits


@pytest.mark.parametrize(
    ("held", "wanted", "what", "remedy"),
    [
        (OWN, Contents("Visits"), "operator: was Sessions, is Visits", 'declare name = "Sessions" in its class'),
        (OWN, HELD, "operator: was Sessions, is aggregates", "use the operator of before"),
        (OWN, Contents("Sessions"), "version of Sessions: was 2, is 1", "run the program with version 2"),
        (OWN, Contents("Sessions", 3), "version of Sessions: was 2, is 3", "define upgrade.* in Sessions"),
        (
            OWN,
            Contents("Sessions", 2, inputs=(("price", "string"), ("more", "int8"))),
            "column price: was int32, is string",
            "cast price to int32 or wider",
        ),
        (
            HELD,
            Contents("aggregates", aggregates=(HeldAggregate("n", "sum(price)", "int32"),)),
            r"aggregate n: was count\(\), is sum\(price\)",
            r"give sum\(price\) a name of its own",
        ),
        (
            Contents("aggregates", aggregates=(HeldAggregate("total", "sum(price)", "int64"),)),
            HELD,
            r"values of total=sum\(price\): were int64, are int32",
            "cast the column to int64 or wider",
        ),
    ],
)
def test_what_cannot_be_carried_over_is_refused_with_the_way_out(
    tmp_path: Path, held: Contents, wanted: Contents, what: str, remedy: str
) -> None:
    before = identity(contents=held)
    Checkpoint.open(str(tmp_path), before).take_over()
    with pytest.raises(CheckpointMismatchError, match=rf"\({what}\)\. To go on from it, .*{remedy}.* was not touched"):
        Checkpoint.open(str(tmp_path), identity(contents=wanted))


def test_what_is_new_counts_from_the_next_epoch_on_and_the_checkpoint_remembers_it(
    tmp_path: Path,
) -> None:
    run(started(tmp_path), [0, 1, 2])
    wider = HeldAggregate("total", "sum(price)", "int64")
    changed = identity(contents=Contents("aggregates", aggregates=(COUNT, wider)))
    looked_at = Checkpoint.open(str(tmp_path), changed)  # is overtaken, before it has written anything
    checkpoint = Checkpoint.open(str(tmp_path), changed)
    assert checkpoint.take_over() == ["n=count() is new: it counts rows from epoch 3 on"]
    now = (HeldAggregate("n", "count()", "", since=3), wider)
    assert checkpoint.identity.contents[0].aggregates == now
    run(checkpoint, [3])
    assert looked_at.take_over() == []
    assert looked_at.identity.contents[0].aggregates == now, "it was new then, and is not any more"
    with pytest.raises(CheckpointMismatchError, match=r"values of total=sum\(price\): were int64, are int32"):
        Checkpoint.open(str(tmp_path), identity())


def test_what_was_given_up_starts_anew() -> None:
    without = succeeded(HELD, Contents("aggregates", aggregates=(TOTAL,)), 5)
    assert list(remarks(HELD, without)) == ["n=count() is no longer kept: what it came to is lost"]
    again = succeeded(without, HELD, 9)
    assert [each.since for each in again.aggregates] == [0, 9]


def test_a_changed_operator_of_the_same_version_is_noticed() -> None:
    changed = Contents("Sessions", version=2, source="b")
    assert not differences(OWN, changed)
    assert "raise version and define upgrade" in next(iter(remarks(OWN, changed)))
    for silent in (OWN, Contents("Sessions", 2), Contents("Sessions", 3, reads_older=True, source="b")):
        assert not differences(OWN, silent)
        assert not list(remarks(OWN, silent))
