"""What is installed without extras works without them, and what needs one says so in one sentence."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import evenflow

ROOT = Path(__file__).parents[1]
SOURCE = Path(evenflow.__file__).parent
TERMINAL, PLOTS, RESEARCH = {"typer", "rich", "click"}, {"matplotlib", "PIL"}, {"scipy", "mmh3"}
# Packages that stand on extras; all others must not.
ON_EXTRAS = ("evenflow.cli.", "evenflow.demo", "evenflow.plot.drawing")

# Makes a process in which some libraries are not installed.
WITHOUT = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {absent!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Absent())
"""


def python(absent: set[str], code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `code` in a Python that lacks the libraries `absent`."""
    command = [sys.executable, "-c", WITHOUT.format(absent=absent) + code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def modules() -> list[str]:
    names = [".".join(path.relative_to(SOURCE.parent).with_suffix("").parts) for path in SOURCE.rglob("*.py")]
    return sorted(name.removesuffix(".__init__") for name in names)


def test_every_module_that_lanes_and_the_driver_need_comes_without_extras() -> None:
    needed = [name for name in modules() if not name.startswith(ON_EXTRAS)]
    assert {"evenflow.cli", "evenflow.spark.lanes", "evenflow.lane.worker", "evenflow.sim.what_if"} <= set(needed)
    code = "from importlib import import_module\nfor name in sys.argv[1:]: import_module(name)"
    done = python(TERMINAL | PLOTS | RESEARCH, code, *needed)
    assert done.returncode == 0, done.stderr


def test_what_a_lane_does_with_rows_comes_with_the_libraries_of_an_executor() -> None:
    """Spark itself starts the process, but these packages do not reach for it."""
    packages = ("evenflow.lane", "evenflow.operators", "evenflow.state", "evenflow.model")
    code = "from importlib import import_module\nfor name in sys.argv[1:]: import_module(name)"
    needed = [name for name in modules() if name.startswith(packages)]
    done = python(TERMINAL | PLOTS | RESEARCH | {"pyspark", "py4j"}, code, *needed)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("absent", "arguments", "sentence"),
    [
        (
            TERMINAL,
            ["plan", "--example", "hot-lane"],
            "the command needs typer, which is not installed: pip install 'evenflow[cli]'",
        ),
        (
            {"rich"},
            ["policies"],
            "the command needs rich, which is not installed: pip install 'evenflow[cli]'",
        ),
        (
            PLOTS,
            ["simulate", str(ROOT / "examples" / "hot_lane.toml"), "--png", "x.png"],
            "simulate: --png needs matplotlib, which is not installed: pip install 'evenflow[plot]'",
        ),
        (PLOTS, ["demo"], "demo: its picture needs matplotlib, which is not installed: pip install 'evenflow[plot]'"),
    ],
)
def test_a_command_without_its_extra_says_how_to_get_it(absent: set[str], arguments: list[str], sentence: str) -> None:
    code = "sys.argv[0] = 'evenflow'\nfrom evenflow.cli import main\nmain()"
    done = python(absent, code, *arguments)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"evenflow: {sentence}\n")


def test_the_command_line_needs_no_plots() -> None:
    code = "from evenflow.cli import main\nmain()"
    done = python(PLOTS | RESEARCH, code, "simulate", str(ROOT / "examples" / "hot_lane.toml"), "--json")
    assert done.returncode == 0, done.stderr


def test_a_library_that_is_broken_is_not_called_missing() -> None:
    """Only what an extra brings is explained; anything else that is not there is a defect and shows itself."""
    done = python({"msgspec"}, "from evenflow.cli import main\nmain()", "policies")
    assert done.returncode == 1
    assert "No module named 'msgspec'" in done.stderr
