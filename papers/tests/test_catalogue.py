"""Which experiments there are, and what names mean."""

from __future__ import annotations

import subprocess
import sys

import pytest

from evenflow.errors import InputError
from papers.catalogue import every_experiment, experiment_with, select


def test_ids_are_unique_and_every_experiment_says_what_counts() -> None:
    everything = every_experiment()
    assert len({experiment.id for experiment in everything}) == len(everything)
    for experiment in everything:
        assert experiment.figure
        assert experiment.title
        assert len(str(experiment.rule)) > 20, f"{experiment.id} needs a rule"
        assert "sim" in experiment.engines or "spark" in experiment.engines


def test_an_id_is_found_in_any_case() -> None:
    assert experiment_with("gz-e1").id == "GZ-E1"


def test_names_are_ids_papers_or_all_and_each_experiment_comes_once() -> None:
    single = select(["GZ-E3"], "sim")
    assert ([one.id for one in single.experiments], single.single) == (["GZ-E3"], True)
    paper = select(["gz"], "sim")
    assert [one.id for one in paper.experiments] == [f"GZ-E{number}" for number in range(1, 10)]
    assert not paper.single
    several = select(["GZ-E3", "GZ-E1", "GZ-E3"], "sim")
    assert [one.id for one in several.experiments] == ["GZ-E3", "GZ-E1"]
    assert not several.single
    assert {one.id for one in select(["all"], "sim").experiments} >= {one.id for one in paper.experiments}


def test_unknown_names_are_answered_with_near_ones() -> None:
    with pytest.raises(InputError, match=r"no experiment named 'GZ-E99'; near it: .*GZ-E9"):
        select(["GZ-E99"], "sim")
    with pytest.raises(InputError, match="python -m papers list"):
        select(["xylophone"], "sim")
    with pytest.raises(InputError, match="name an experiment"):
        select([], "sim")


def test_what_has_no_run_on_spark_is_refused_alone_and_left_out_of_groups() -> None:
    with pytest.raises(InputError, match="GZ-E9 has no run on spark: it runs on sim only"):
        select(["GZ-E9"], "spark")
    group = select(["GZ"], "spark")
    assert any(reason.startswith("GZ-E9 has no run on spark") for reason in group.left_out)
    assert "GZ-E9" not in {one.id for one in group.experiments}


def test_looking_up_one_paper_imports_no_other_and_no_plots() -> None:
    code = (
        "import sys; from papers.catalogue import experiment_with; experiment_with('GZ-E9');"
        "print([name for name in sys.modules if name.startswith(('matplotlib', 'pyspark', 'papers.dpa',"
        " 'papers.autoflow', 'papers.flux'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_ids_are_exactly_those_of_the_five_papers_and_the_cross_table() -> None:
    counts = {"AF": 15, "LR": 7, "GZ": 9, "FX": 12, "DP": 8}
    expected = [f"{paper}-E{number}" for paper, count in counts.items() for number in range(1, count + 1)]
    assert [experiment.id for experiment in every_experiment()] == [*expected, "cross"]
    assert [experiment.id for experiment in select(["all"], "sim").experiments] == expected
