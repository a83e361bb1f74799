"""Runs tests in forked processes: all of them once, to see what they execute; then those that can notice a mutant.

A fork has the large libraries already, so a quick test costs its own time and not pytest's start.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest

_LARGE = ("numpy", "pandas", "pyarrow", "pyarrow.parquet", "pyarrow.compute", "pyarrow.fs", "msgspec", "scipy.optimize")
_TOLD = ("-x", "-q", "-p", "no:cacheprovider", "-m", "not spark", "--hypothesis-profile", "mutants")
_SLACK_S = 20.0  # for a busy machine, beside ten times what a test takes
_BUDGET_S = 20.0  # of tests per mutant, the quick ones first: one that only slower ones would notice counts as survived


class Outcome(Enum):
    """What became of a mutant."""

    KILLED = "killed"
    SURVIVED = "survived"
    TIMEOUT = "timeout"  # noticed too: the tests end without the change


@dataclass
class Seen:
    """What the tests did before anything was changed."""

    seconds: dict[str, float] = field(default_factory=dict)  # of each test
    lines: dict[str, dict[int, set[str]]] = field(default_factory=dict)  # which tests execute a line of a module

    def concerned(self, module: str, lines: range) -> list[str]:
        """Return the tests that execute a line, the quick ones first; else those of the module, else all."""
        known = self.lines.get(module, {})
        tests = {test for line in lines for test in known.get(line, ())}
        tests = tests or {test for line in known for test in known[line]} or set(self.seconds)
        ordered = sorted(tests, key=lambda test: (self.seconds[test], test))
        spent = accumulate(self.seconds[test] for test in ordered)
        return [test for test, so_far in zip(ordered, spent, strict=True) if so_far <= _BUDGET_S] or ordered[:1]


class _Watch:
    """Notes how long each test takes, and which lines it executes."""

    def __init__(self, coverage: Any) -> None:
        self.coverage = coverage
        self.seconds: defaultdict[str, float] = defaultdict(float)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self.coverage.switch_context(item.nodeid)
        return (yield)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.seconds[report.nodeid] += report.duration


class _Choice:
    """Runs the chosen tests only, in their order; one that takes far longer than before has failed."""

    def __init__(self, chosen: Sequence[str], seconds: dict[str, float]) -> None:
        self.places = {test: place for place, test in enumerate(chosen)}
        self.seconds = seconds
        self.functions = {test.partition("[")[0]: place for place, test in enumerate(chosen)}

    def place(self, test: str) -> int | None:
        """Return when a test is to run; a name that differs with every run goes by its function."""
        return self.places.get(test) if test in self.seconds else self.functions.get(test.partition("[")[0])

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        chosen = [(place, item) for item in items if (place := self.place(item.nodeid)) is not None]
        items[:] = [item for _, item in sorted(chosen, key=lambda each: each[0])]
        for item in items:
            limit = _SLACK_S + 10 * self.seconds.get(item.nodeid, 1.0)
            item.add_marker(pytest.mark.timeout(limit), append=False)


def forked(work: Callable[[], int], limit_s: float, output: Path) -> int | None:
    """Return what `work` returns in a process of its own, or None if that took too long."""
    child = os.fork()
    if child == 0:
        os.setsid()
        with output.open("wb") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        code = 70
        with contextlib.suppress(BaseException):
            code = int(work())
        sys.stdout.flush()
        os._exit(code)
    end = time.monotonic() + limit_s
    status = None
    while status is None and time.monotonic() < end:
        known, ended = os.waitpid(child, os.WNOHANG)
        status = os.waitstatus_to_exitcode(ended) if known else None
        time.sleep(0.02)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)  # and what it started
    if status is None:
        os.waitpid(child, 0)
    return status


def prepare(place: Path) -> None:
    """Let this process, and those forked from it, import what stands at `place`."""
    os.chdir(place)
    sys.path[:0] = [str(place / "src"), str(place)]
    for name in _LARGE:
        importlib.import_module(name)


def seen(tests: Sequence[str], source: Path) -> Seen:
    """Run all the tests as they are, and return what they execute of the modules in `source`."""
    kept = Path("seen.json").absolute()

    def work() -> int:
        from coverage import Coverage

        coverage = Coverage(data_file=None, include=[f"{source.absolute()}/*.py"], config_file=False)
        watch = _Watch(coverage)
        coverage.start()
        code = pytest.main([*_TOLD, "--timeout", "300", *tests], plugins=[watch])
        coverage.stop()
        data = coverage.get_data()
        lines = {Path(name).name: data.contexts_by_lineno(name) for name in data.measured_files()}
        kept.write_text(json.dumps({"seconds": watch.seconds, "lines": lines}))
        return int(code)

    if forked(work, 3600.0, Path("seen.txt")) != 0:
        sys.exit(f"the tests fail before anything is changed: see {Path('seen.txt').absolute()}")
    told = json.loads(kept.read_text())
    lines = {
        name: {int(line): set(tests) - {""} for line, tests in contexts.items()}
        for name, contexts in told["lines"].items()
    }
    return Seen(told["seconds"], lines)


def judged(tests: Sequence[str], seconds: dict[str, float]) -> Outcome:
    """Run these tests on what is there now."""

    def work() -> int:
        sys.dont_write_bytecode = True  # the next change may come within the same second
        files = sorted({test.partition("::")[0] for test in tests})
        return int(pytest.main([*_TOLD, *files], plugins=[_Choice(tests, seconds)]))

    limit = 2 * _SLACK_S + 10 * total(tests, seconds)
    code = forked(work, limit, Path("output.txt"))
    if code is None:
        return Outcome.TIMEOUT
    return Outcome.SURVIVED if code in {pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED} else Outcome.KILLED


def total(tests: Collection[str], seconds: dict[str, float]) -> float:
    """Return how long tests took together."""
    return sum(seconds[test] for test in tests)
