"""The wheel: it holds the package alone, and runs the README's first example where nothing else is installed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "evenflow"
REQUIRED = {"pyspark", "pyarrow", "pandas", "numpy", "msgspec", "cloudpickle"}
EXAMPLE = re.compile(r"```python\n(?P<code>.*?)```\s*```text\n(?P<output>.*?)```", re.DOTALL)


def run(*command: str | Path, cwd: Path, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run a command that sees nothing of this checkout or of this environment."""
    hidden = {"PYTHONPATH", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "SPARK_HOME"}
    given = {name: value for name, value in os.environ.items() if name not in hidden}
    own = {"PYTHONNOUSERSITE": "1", "PYSPARK_PYTHON": str(command[0])}
    done = subprocess.run(
        [str(word) for word in command], cwd=cwd, env={**given, **own}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0 or not check, done.stdout + done.stderr
    return done


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel, with the hatchling of the lock file: no network."""
    folder = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check"]
    run(*pip, "--no-index", "--no-deps", "--no-build-isolation", "--wheel-dir", folder, ROOT, cwd=folder)
    (built,) = folder.glob("evenflow-*.whl")
    return built


def files_of(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def requirements_of(wheel: Path) -> list[Requirement]:
    with zipfile.ZipFile(wheel) as archive:
        (metadata,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        lines = archive.read(metadata).decode().splitlines()
    return [Requirement(line.removeprefix("Requires-Dist: ")) for line in lines if line.startswith("Requires-Dist: ")]


def without_extras(requirements: list[Requirement]) -> list[Requirement]:
    return [one for one in requirements if one.marker is None or one.marker.evaluate({"extra": ""})]


def test_it_holds_the_package_and_nothing_else(wheel: Path) -> None:
    found = {name for name in files_of(wheel) if ".dist-info/" not in name}
    wanted = {
        str(path.relative_to(PACKAGE.parent))
        for path in PACKAGE.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert found == wanted
    folders = {part for name in files_of(wheel) for part in Path(name).parts[:-1]}
    assert not folders & {"papers", "tests", "benchmarks", "examples", "tools", "docs"}


def test_it_asks_for_what_lanes_and_the_driver_need(wheel: Path) -> None:
    requirements = requirements_of(wheel)
    assert {one.name for one in without_extras(requirements)} == REQUIRED
    extras = {extra for one in requirements for extra in re.findall(r"extra == ['\"](\w+)['\"]", str(one.marker))}
    assert extras == {"cli", "plot", "sketches", "all", "dev"}


def needed(wheel: Path) -> Iterator[Distribution]:
    """Yield the distributions that the wheel needs without extras, and what they need, as they are installed here."""
    waiting, seen = without_extras(requirements_of(wheel)), set[str]()
    while waiting:
        name = waiting.pop().name
        if name not in seen:
            seen.add(name)
            yield distribution(name)
            waiting += without_extras([Requirement(text) for text in distribution(name).requires or []])


def empty_environment(folder: Path, distributions: Iterator[Distribution]) -> Path:
    """Make an environment that has these distributions only (as links: Spark alone is 450 MB); return its Python."""
    run(sys.executable, "-m", "venv", folder, cwd=folder.parent)
    (packages,) = folder.glob("lib/python3*/site-packages")
    for one in distributions:
        tops = {file.parts[0] for file in one.files or ()} - {"..", "__pycache__"}
        for top in sorted(tops):
            (packages / top).symlink_to(Path(str(one.locate_file(top))).resolve())
    return folder / "bin" / "python"


@pytest.mark.spark
def test_the_readmes_first_example_runs_with_the_wheel_and_what_it_requires(wheel: Path, tmp_path: Path) -> None:
    python = empty_environment(tmp_path / "env", needed(wheel))
    # pip finds every requirement fulfilled, or fails: it may not look for any elsewhere.
    run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index", wheel, cwd=tmp_path)
    example = EXAMPLE.search((ROOT / "README.md").read_text())
    assert example is not None
    where = "\nprint(ef.__file__)\n"
    shown, _, source = run(python, "-c", example["code"] + where, cwd=tmp_path).stdout.strip().rpartition("\n")
    assert shown.strip() == example["output"].strip()
    assert Path(source).is_relative_to(tmp_path / "env")

    command = run(python, python.with_name("evenflow"), "policies", cwd=tmp_path, check=False)
    assert command.returncode == 2
    assert command.stderr == "evenflow: the command needs typer, which is not installed: pip install 'evenflow[cli]'\n"
