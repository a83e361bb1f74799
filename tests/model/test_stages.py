"""What people call units: by slot, or by stage and slot."""

from __future__ import annotations

import pytest

from evenflow.model import StageUnits, UnitNames

TWO = UnitNames((StageUnits(0, 8), StageUnits(8, 4, 0)))
ONE = UnitNames((StageUnits(0, 8),))


@pytest.mark.parametrize(
    ("unit", "stage", "slot"),
    [(0, 0, 0), (7, 0, 7), (8, 1, 0), (11, 1, 3)],
)
def test_several_stages_are_named(unit: int, stage: int, slot: int) -> None:
    assert TWO.of(unit) == {"stage": stage, "slot": slot, "unit": unit}
    assert TWO.text(unit) == f"stage {stage} slot {slot}"


@pytest.mark.parametrize("names", [ONE, UnitNames()])
def test_one_stage_is_not(names: UnitNames) -> None:
    assert names.of(7) == {"slot": 7}
    assert names.text(7) == "slot 7"
    assert names.named({"slot": 7, "lane": 1}) == {"slot": 7, "lane": 1}


def test_names_stand_where_the_unit_stood() -> None:
    row = TWO.named({"epoch": 3, "slot": 9, "lane": 1})
    assert list(row.items()) == [("epoch", 3), ("stage", 1), ("slot", 1), ("unit", 9), ("lane", 1)]
