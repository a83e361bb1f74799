"""evenflow as a zip on the Python path, which is how `--py-files evenflow.zip` brings it to a cluster."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import evenflow

SOURCE = Path(evenflow.__file__).parent

# Nothing is installed under the name: a zip has no metadata.
SCRIPT = """
import importlib.metadata as metadata
def absent(name):
    raise metadata.PackageNotFoundError(name)
metadata.distribution = metadata.version = absent
import evenflow
import evenflow.spark
import evenflow.spark.lanes
assert ".zip" in evenflow.__file__, evenflow.__file__
print(evenflow.__version__, evenflow.SlotOperator.__name__, evenflow.sum("price"))
"""


def test_a_zip_of_the_package_works_without_being_installed(tmp_path: Path) -> None:
    archive = tmp_path / "evenflow.zip"
    with zipfile.ZipFile(archive, "w") as file:
        for path in SOURCE.rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                file.write(path, path.relative_to(SOURCE.parent))
    environment = {**os.environ, "PYTHONPATH": str(archive)}
    command = [sys.executable, "-c", SCRIPT]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{evenflow.__version__} SlotOperator")
