"""The mechanism rows say what Spark does not have."""

from __future__ import annotations

from pathlib import Path

from papers.mechanisms import read_mechanisms

SOURCE = Path(__file__).parents[2] / "src" / "evenflow"
ROWS = {row.id: row for mechanisms in read_mechanisms() for row in mechanisms.rows}


def on_spark(word: str) -> bool:
    """Say whether the engine on Spark, or its lanes, know a word at all."""
    files = [file for folder in ("spark", "lane") for file in (SOURCE / folder).rglob("*.py")]
    return any(word in file.read_text() for file in files)


def test_what_needs_memory_budgets_is_in_the_simulator_only_while_lanes_on_spark_have_none() -> None:
    for id_ in ("FX-M12", "FX-M13", "FX-M14", "FX-M16"):
        assert (ROWS[id_].status == "simulator only") is not on_spark("memory_budget"), id_


def test_a_key_on_two_lanes_is_in_the_simulator_only_while_nothing_merges_on_spark() -> None:
    assert (ROWS["GZ-M7"].status == "simulator only") is not on_spark("merge")
    assert "see GZ-M7" in ROWS["FX-M2"].why


def test_what_is_in_the_simulator_only_says_why() -> None:
    assert [row.id for row in ROWS.values() if row.status != "built" and not row.why] == []
