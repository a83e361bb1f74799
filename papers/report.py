"""papers/reproduction.md: all results in tables, paper by paper, and the tests that prove each mechanism.

Results are kept beside the page, so that it can be written again when some of them are renewed, and so that it can be
checked: a page that nobody renewed after a rule was changed fails the tests.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from evenflow.errors import InputError
from papers.catalogue import CROSS, PAPERS, Paper, experiment_with
from papers.experiment import Engine, Verdict, worst
from papers.glossary import ids_in, read_glossary
from papers.mechanisms import Mechanisms, Row, read_mechanisms
from papers.results import Result, read_result, read_results, to_json

FIGURES = "figures"
RESULTS = "results"

_HEAD = """# The papers, reproduced

Written by `python -m papers report` from the results of `python -m papers all`, of the same with `--engine spark`, and
of `python -m papers cross`, which are kept in [results](results); do not edit. Pictures drawn before the research had
a folder of its own name the command `evenflow reproduce`, which is `python -m papers run` now. The papers survive as
text only, without plots: "published" is what their prose, tables and captions say. A verdict is computed from the run
by the rule that stands above each table, written before the run: **match**, **shape holds** or **differs**. The worst
statement of an experiment is its verdict. Some results of the papers are negative; they must come out negative here
too. What short ids stand for is said [below](#ids).

The line below a table has the command, and the seeds that were run. Over several seeds a number is the median, (lowest
to highest) behind it; arms that a statement is only held against may have run with the first seed alone. "One run" is
one run: on Spark always. LR-E1 to E4, E6, E7, DP-E1 to E5, E8 and FX-E11 leave nothing to chance in the simulator.

Not everything was settled before the first look at an outcome. Set after one: LR-E1's capacity of a worker and epoch,
LR-E3's own arm, LR-E5's second rule, the bounds of AF-E2 and AF-E12, set-up or rule of FX-E4, E5, E7 and E9, in FX-E2
the range that counts as shape and the run without chance; on Spark the sizes, epochs and warm-up of FX-E1, E2 and
GZ-E3, the proportions of FX-E4 (with the former ones it matched, by a defect of the engine that is mended), and in
GZ-E7 the number of lanes, the length of stages and how rows are counted for one. `even` itself was improved with FX-E4
and the cross table in view. Runs on Spark had simulations of low priority beside them, but for AF-E2 and E9 to E12,
which were run again alone after a look: beside other work E12 had differed. AF-E11 and E12 on Spark stood here as
"shape holds" though no episode was relieved: code and printed rule said different things. Since then a rule is one
object, which prints the sentence and gives the verdict, and a result keeps the values that it was judged on: with runs
from before, those that are printed or drawn. E11, E12 and GZ-E4 on Spark were then run again, alone, for pictures that
can be read: E12 relieved 1 of 5 episodes, where the run before had relieved none and differed. It is on the edge.

Made stricter after a look: GZ-E2 judges the paper's four algorithms only; GZ-E3 judges deviations as well as means;
GZ-E5 compares all four columns of Table 2; GZ-E6 and E7 take the median over the seeds of each run's value; GZ-E7
judges CLB's speed-up too and asks for a margin of 1 % before PKG and UHLB count as further from linear or CLB as last,
also on Spark; FX-E2 judges rate and partitions on the same runs, and a match needs 31 or 32 moves in all; in FX-E5 both
runs must be stalled; in FX-E9 what strays in the last 20 s is not steady, and there is no match unless both runs are.
On Spark shares in FX-E1 to E3 are of what the lanes' limits add up to, a rate above that limit is no match in E1 and
E2, and FX-E2 must be steady before the end that it is compared with.

"""
_IDS = """## Ids

A paper's code, then E: an experiment; M: a mechanism and F: a future work (both in the tables below); P: a parameter;
A: a place where the text is open or errs, and how it is read here. Of P and A those that occur on this page:

| id | what it is |
|---|---|"""
_MECHANISMS = "## Mechanisms\n\nWhat the papers build, and the tests that prove it here; the suite runs them all.\n"


@dataclass(frozen=True, slots=True)
class Written:
    """How many results a report took in and has; `quick` ones were left out, since full ones are kept."""

    taken: int
    quick: int
    results: int


def write_report(source: Path, page: Path) -> Written:
    """Add the results in `source` to those kept beside `page`, and write it from all that are kept.

    Nothing is written if anything is missing.
    """
    new, folder = read_results(source), page.parent
    try:
        full = {path.stem for path in (folder / RESULTS).glob("*.json") if not read_result(path).quick}
        taken = [result for result in new if not result.quick or result.stem not in full]
        pictures = {result.stem: _picture(result, source, folder) for result in taken}
        for part in (RESULTS, FIGURES):
            (folder / part).mkdir(parents=True, exist_ok=True)
        for result in taken:
            _keep(result, pictures[result.stem], folder)
        results = [_judged_again(result, folder) for result in read_results(folder / RESULTS)]
        page.write_text(render(results))
        _update_choosing(folder, results)
    except OSError as error:
        raise InputError(f"cannot write {page}: {error}") from error
    return Written(len(taken), len(new) - len(taken), len(results))


def _judged_again(result: Result, folder: Path) -> Result:
    """Return a kept result by the rule there is now, from the values that were kept with it; keep it so."""
    rule = experiment_with(result.id).rule_on(result.engine)
    if result.rule == str(rule) and not rule.faults(result.checks):
        return result
    names = {statement.name for statement in rule.statements}
    if {check.statement for check in result.checks} != names or not all(check.values for check in result.checks):
        raise InputError(f"{result.stem} was judged on other statements than its rule has now; run it again")
    checks = tuple(
        replace(check, verdict=rule.named(check.statement).verdict(*check.values)) for check in result.checks
    )
    again = replace(result, rule=str(rule), checks=checks, verdict=worst(checks))
    _write(again, folder)
    return again


def _picture(result: Result, source: Path, folder: Path) -> Path | None:
    """Return where a result's picture is: beside it, or, of a result that is kept already, in its place."""
    if result.picture is None:
        return None
    places = (source / Path(result.picture).name, folder / FIGURES / Path(result.picture).name)
    found = next((place for place in places if place.exists()), None)
    if found is None:
        raise InputError(f"{places[0]} is missing, the picture of {result.id}; run it again")
    return found


def _keep(result: Result, picture: Path | None, folder: Path) -> None:
    """Keep a result and its picture in `folder`; of the numbers behind it only those that pages are made of."""
    place = folder / FIGURES / f"{result.stem}.png"
    if picture is None:
        place.unlink(missing_ok=True)
    elif picture.resolve() != place.resolve():
        shutil.copyfile(picture, place)
    whole = result.id == CROSS
    slim = replace(result, picture=None if picture is None else place.name, data=result.data if whole else {})
    _write(slim, folder)


def _write(result: Result, folder: Path) -> None:
    indent = 0 if result.id == CROSS else 1  # thousands of numbers stay in one line
    lines = msgspec.json.format(to_json(result), indent=indent)
    (folder / RESULTS / f"{result.stem}.json").write_bytes(lines + b"\n")


def _update_choosing(folder: Path, results: Sequence[Result]) -> None:
    """Renew the tables of the page on choosing a policy, if it is there and the whole cross table was run."""
    from papers.cross.reading import PAGE, with_tables  # brings the simulator along

    whole = [result for result in results if result.id == CROSS and not result.quick]
    page = folder.parent / PAGE
    if whole and page.exists():
        page.write_text(with_tables(page.read_text(), whole[0]))


def render(results: Sequence[Result]) -> str:
    """Return the whole page."""
    parts = [_HEAD, _summary(results)]
    parts += [_paper_part(paper, own) for paper in PAPERS if (own := _of_paper(results, paper))]
    mechanisms = mechanism_part(read_mechanisms())
    page = "\n".join(parts)
    return "\n".join([page, _ids_part(page + mechanisms), mechanisms])


def _ids_part(page: str) -> str:
    """Return what the ids of parameters and readings on `page` stand for."""
    meanings = read_glossary()
    return "\n".join([_IDS, *(f"| {id_} | {_cell(meanings.get(id_, ''))} |" for id_ in ids_in(page)), ""])


def mechanism_part(mechanisms: Iterable[Mechanisms]) -> str:
    """Return the part of the page that depends on the rows only."""
    parts = [_MECHANISMS]
    for one in mechanisms:
        parts.append(f"### {one.paper.replace('_', ' ')}\n\n| id | mechanism | status | tests |\n|---|---|---|---|")
        parts += [_mechanism_line(row) for row in one.rows]
        parts.append("")
    return "\n".join(parts)


def _mechanism_line(row: Row) -> str:
    tests = "<br>".join(f"`{test}`" for test in row.tests)
    status = f"{row.status}: {row.why}" if row.why else row.status
    return f"| {row.id} | {_cell(row.mechanism)} | {_cell(status)} | {tests} |"


def _of_paper(results: Sequence[Result], paper: Paper) -> list[Result]:
    """Return the paper's results in the order of their numbers, the simulator's before Spark's."""
    own = [result for result in results if result.id.partition("-")[0] == paper.code]
    return sorted(own, key=lambda result: (_number(result.id), result.engine))


def _number(id_: str) -> int:
    digits = "".join(letter for letter in id_.partition("-")[2] if letter.isdigit())
    return int(digits or 0)


def _summary(results: Sequence[Result]) -> str:
    """Return a table of how many experiments of each paper came out how, in the simulator and on Spark."""
    words = " | ".join(verdict.value for verdict in Verdict)
    lines = [f"| paper | simulator: experiments | {words} | Spark: experiments | {words} |", "|---" * 9 + "|"]
    lines += [
        f"| {paper.name} | {_counts(own, 'sim')} | {_counts(own, 'spark')} |"
        for paper in PAPERS
        if (own := _of_paper(results, paper))
    ]
    quick = sum(result.quick for result in results)
    note = f"\n{quick} of {len(results)} results come from a quick run: fewer seeds, smaller sizes.\n" if quick else ""
    return "\n".join([*lines, note])


def _counts(results: Sequence[Result], engine: Engine) -> str:
    """Return the cells of one engine: how many were run, and how many came out how; empty if none was."""
    own = [result.verdict for result in results if result.engine == engine]
    counts = [len(own), *(own.count(verdict) for verdict in Verdict)]
    return " | ".join(str(count) if own else "" for count in counts)


def _paper_part(paper: Paper, results: Iterable[Result]) -> str:
    return "\n".join([f"## {paper.name}\n", *(_experiment_part(result) for result in results)])


def _experiment_part(result: Result) -> str:
    size = ", quick" if result.quick else ""
    where = "" if result.engine == "sim" else ", on Spark"
    lines = [
        f"### {result.id}, {result.figure}: {result.title}{where} — {result.verdict.value}\n",
        f"*Rule.* {result.rule}\n",
        "| statement | published | ours | verdict | why |",
        "|---|---|---|---|---|",
    ]
    lines += [
        f"| {_cell(check.what)} | {_cell(check.published)} | {_cell(check.ours)} | {check.verdict.value} | "
        f"{_cell(check.why)} |"
        for check in result.checks
    ]
    if result.note:
        lines.append(f"\n{result.note}")
    lines.append(f"\n`{result.command}` ({result.engine}{size}; {result.runs}; {result.seconds:.0f} s)")
    if result.picture is not None:
        lines.append(f"\n![{result.id}]({FIGURES}/{result.stem}.png)")
    return "\n".join([*lines, ""])


def _cell(text: str) -> str:
    """Return `text` so that it stays in its cell."""
    return text.replace("|", "\\|").replace("\n", " ")
