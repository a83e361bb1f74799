"""The report: results in tables, figures beside it, and the mechanism rows with tests that exist."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from evenflow.errors import InputError
from papers.catalogue import every_experiment, experiment_with
from papers.cross.reading import PAGE, with_tables
from papers.experiment import Check, Verdict
from papers.glossary import ids_in, read_glossary
from papers.mechanisms import COUNTS, Row, _read, missing_tests, read_mechanisms
from papers.report import Written, mechanism_part, render, write_report
from papers.results import Result, read_result, read_results, to_json

ROOT = Path(__file__).parents[2]
PAPERS = ROOT / "papers"
ROWS = [row for mechanisms in read_mechanisms() for row in mechanisms.rows]


def result(id_: str, picture: str | None = None, *, quick: bool = False) -> Result:
    checks = (Check("a | b", "1", "2", Verdict.DIFFERS, "because"),)
    return Result(
        id_, "Fig. 1", "a title", "a rule", "sim", quick, 1, 2.0, Verdict.DIFFERS, checks,
        f"python -m papers run {id_} --seed 1", picture,
    )  # fmt: skip


def judged(id_: str, picture: str | None = None, *, quick: bool = False) -> Result:
    """Return a result that was judged by the rule of its experiment."""
    return replace(read_result(PAPERS / "results" / f"{id_}.json"), picture=picture, quick=quick)


def test_every_result_stands_in_the_page_in_order() -> None:
    page = render([result("GZ-E10"), result("GZ-E2"), result("AF-E1", quick=True)])
    places = [page.index(f"### {id_}") for id_ in ("AF-E1", "GZ-E2", "GZ-E10")]
    assert places == sorted(places)
    assert r"| a \| b | 1 | 2 | differs | because |" in page
    assert "`python -m papers run GZ-E2 --seed 1`" in page
    assert "1 of 3 results come from a quick run" in page
    assert "| Stateful load balancing (Guo, Zhou) | 2 | 0 | 0 | 2 |  |  |  |  |" in page


def test_runs_on_spark_are_counted_apart() -> None:
    on_spark = replace(result("GZ-E1"), engine="spark", verdict=Verdict.MATCH)
    page = render([result("GZ-E1"), result("GZ-E2"), on_spark])
    assert "| Stateful load balancing (Guo, Zhou) | 2 | 0 | 0 | 2 | 1 | 1 | 0 | 0 |" in page


def test_the_page_says_what_its_ids_stand_for() -> None:
    told = render([replace(result("GZ-E1"), note="not given (GZ-P5, P10); as in GZ-E3, E4 and FX-A9")])
    part = told[told.index("## Ids") : told.index("## Mechanisms")]
    rows = [line.split(" | ") for line in part.splitlines() if line.startswith(("| GZ", "| FX"))]
    assert {"| GZ-P5", "| GZ-P10", "| FX-A9"} <= {row[0] for row in rows}
    assert not any(id_ in part for id_ in ("GZ-E3", "GZ-P3 ", "GZ-P4 "))
    assert all(len(row[1]) > 10 for row in rows)


def test_every_id_that_is_named_anywhere_has_a_meaning() -> None:
    files = [*PAPERS.rglob("*.py"), *PAPERS.glob("*/mechanisms.toml")]
    named = {id_ for file in files if "tests" not in file.parts for id_ in ids_in(file.read_text())}
    assert sorted(named - read_glossary().keys()) == [], "say what they are in papers/glossary.toml"


@pytest.mark.parametrize(
    ("seeds", "words"),
    [
        (tuple(range(1, 21)), "seeds 1 to 20"),
        ((4,), "seed 4: one run"),
        ((1, 3, 8), "seeds 1, 3, 8"),
        ((), "seed 1: one run"),
    ],
)
def test_the_page_says_which_seeds_were_run(seeds: tuple[int, ...], words: str) -> None:
    assert f"(sim; {words}; 2 s)" in render([replace(result("GZ-E1"), seeds=seeds)])


def test_a_result_from_before_seeds_were_kept_can_be_read(tmp_path: Path) -> None:
    old = msgspec.json.decode(to_json(result("GZ-E1")))
    del old["seeds"]
    (tmp_path / "GZ-E1.json").write_bytes(msgspec.json.encode(old))
    assert read_results(tmp_path) == [result("GZ-E1")]


def test_the_page_and_its_figures_are_written(tmp_path: Path) -> None:
    source = tmp_path / "results"
    source.mkdir()
    (source / "GZ-E1.png").write_bytes(b"png")
    (source / "GZ-E1.json").write_bytes(to_json(judged("GZ-E1", str(source / "GZ-E1.png"))))
    assert write_report(source, tmp_path / "papers" / "reproduction.md") == Written(taken=1, quick=0, results=1)
    page = (tmp_path / "papers" / "reproduction.md").read_text()
    assert "![GZ-E1](figures/GZ-E1.png)" in page
    assert (tmp_path / "papers" / "figures" / "GZ-E1.png").read_bytes() == b"png"


def test_results_that_are_not_renewed_stay_on_the_page(tmp_path: Path) -> None:
    page = tmp_path / "papers" / "reproduction.md"
    for id_, title in (("GZ-E1", "old"), ("GZ-E2", "other"), ("GZ-E1", "new")):
        source = tmp_path / title
        source.mkdir()
        (source / f"{id_}.json").write_bytes(to_json(replace(judged(id_), title=title, data={"x": [1.5]})))
        written = write_report(source, page)
    assert written == Written(taken=1, quick=0, results=2)
    kept = {one.id: one for one in read_results(page.parent / "results")}
    assert {id_: one.title for id_, one in kept.items()} == {"GZ-E1": "new", "GZ-E2": "other"}
    assert all(one.data == {} for one in kept.values())
    assert page.read_text() == render([kept["GZ-E1"], kept["GZ-E2"]])
    page.unlink()
    assert write_report(page.parent / "results", page).results == 2, "from what is kept alone"
    assert page.read_text() == render([kept["GZ-E1"], kept["GZ-E2"]])


def test_a_full_result_is_not_replaced_by_a_quick_one(tmp_path: Path) -> None:
    page = tmp_path / "papers" / "reproduction.md"
    for folder, quick in (("quick", True), ("full", False), ("again", True)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "GZ-E1.json").write_bytes(to_json(judged("GZ-E1", quick=quick)))
        written = write_report(tmp_path / folder, page)
    assert written == Written(taken=0, quick=1, results=1)
    assert [one.quick for one in read_results(page.parent / "results")] == [False]


def test_a_page_beside_the_folder_of_a_run_has_its_pictures(tmp_path: Path) -> None:
    """That folder may be called as the one where results are kept."""
    source = tmp_path / "results"
    source.mkdir()
    (source / "GZ-E1.png").write_bytes(b"png")
    (source / "GZ-E1.json").write_bytes(to_json(judged("GZ-E1", "results/GZ-E1.png")))
    assert write_report(source, tmp_path / "page.md") == Written(taken=1, quick=0, results=1)
    assert (tmp_path / "figures" / "GZ-E1.png").read_bytes() == b"png"


def test_a_missing_picture_is_named_and_nothing_is_written(tmp_path: Path) -> None:
    source = tmp_path / "run"
    source.mkdir()
    (source / "AF-E1.json").write_bytes(to_json(judged("AF-E1")))
    (source / "GZ-E1.json").write_bytes(to_json(judged("GZ-E1", "gone.png")))
    with pytest.raises(InputError, match=r"gone\.png is missing, the picture of GZ-E1"):
        write_report(source, tmp_path / "papers" / "page.md")
    assert not (tmp_path / "papers").exists()


def test_the_picture_of_a_result_that_has_none_any_more_goes(tmp_path: Path) -> None:
    page = tmp_path / "papers" / "page.md"
    for number, picture in enumerate(("GZ-E1.png", None)):
        source = tmp_path / str(number)
        source.mkdir()
        (source / "GZ-E1.png").write_bytes(b"png")
        (source / "GZ-E1.json").write_bytes(to_json(judged("GZ-E1", picture)))
        write_report(source, page)
        assert (page.parent / "figures" / "GZ-E1.png").exists() is (picture is not None)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.id)
def test_each_mechanism_names_tests_that_exist(row: Row) -> None:
    assert missing_tests(row, ROOT) == []
    assert row.tests or row.status == "not built"
    assert row.why or row.status == "built"


def test_no_mechanism_is_listed_twice() -> None:
    assert [id_ for id_, count in Counter(row.id for row in ROWS).items() if count > 1] == []


def test_rows_that_are_none_are_refused() -> None:
    with pytest.raises(InputError, match=r"papers/x/mechanisms\.toml: .*unknown field `tsts`"):
        _read("x", b'[[row]]\nid = "GZ-M1"\nmechanism = "m"\ntsts = []\n')


def test_tests_are_found_in_functions_classes_and_assignments(tmp_path: Path) -> None:
    (tmp_path / "test_x.py").write_text(
        "class TestA:\n    def test_b(self): ...\n\nasync def test_c(): ...\n\nTestD = TestA.TestCase\n"
    )
    found = ("test_x.py::TestA::test_b", "test_x.py::TestA", "test_x.py::test_c", "test_x.py::TestD")
    absent = ("test_x.py::test_b", "test_x.py::TestA::test_c", "test_y.py::test_b", "test_x.py")
    assert missing_tests(Row("X-M1", "m", (*found, *absent)), tmp_path) == list(absent)


def test_the_mechanism_part_lists_every_row() -> None:
    part = mechanism_part(read_mechanisms())
    assert all(f"| {row.id} |" in part for row in ROWS)


@pytest.mark.parametrize(("paper", "count"), COUNTS.items())
def test_every_mechanism_of_every_paper_is_listed(paper: str, count: int) -> None:
    listed = [row.id for row in ROWS if row.id.startswith(f"{paper}-M")]
    assert sorted(listed, key=lambda id_: int(id_.removeprefix(f"{paper}-M"))) == [
        f"{paper}-M{number}" for number in range(1, count + 1)
    ]


# --- the page as it stands ---------------------------------------------------------------------------------------

KEPT = [read_result(path) for path in sorted((PAPERS / "results").glob("*.json"))]


def test_the_pages_are_what_the_kept_results_give() -> None:
    """If not: `python -m papers report --from papers/results`."""
    assert (PAPERS / "reproduction.md").read_text() == render(KEPT)
    (cross,) = (one for one in KEPT if one.id == "cross")
    page = (ROOT / PAGE).read_text()
    assert page == with_tables(page, cross)


def test_there_is_a_full_result_of_every_experiment_on_every_engine() -> None:
    wanted = {(one.id, engine) for one in every_experiment() for engine in one.engines}
    assert {(one.id, one.engine) for one in KEPT} == wanted
    assert [one.id for one in KEPT if one.quick] == []


@pytest.mark.parametrize("kept", KEPT, ids=lambda kept: kept.stem)
def test_a_kept_result_was_judged_by_the_rule_there_is_now(kept: Result) -> None:
    """If not: `python -m papers report --from papers/results` judges again what was kept with its values."""
    experiment = experiment_with(kept.id)
    rule = experiment.rule_on(kept.engine)
    assert (kept.rule, kept.figure, kept.title) == (str(rule), experiment.figure, experiment.title)
    assert rule.faults(kept.checks) == []
    assert kept.picture is None or (kept.picture == f"{kept.stem}.png" and (PAPERS / "figures" / kept.picture).exists())
    assert kept.verdict == max((check.verdict for check in kept.checks), key=list(Verdict).index)
    assert all(check.why for check in kept.checks if check.verdict is not Verdict.MATCH)


def test_there_is_no_picture_of_anything_else() -> None:
    pictures = {path.name for path in (PAPERS / "figures").iterdir()}
    assert pictures == {kept.picture for kept in KEPT if kept.picture}
