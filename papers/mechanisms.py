"""The mechanism rows: what each paper builds, and the tests that prove it here. One `mechanisms.toml` per paper."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec

from evenflow.errors import InputError

COUNTS = {"AF": 13, "LR": 13, "GZ": 10, "FX": 17, "DP": 11}
"""How many mechanisms each paper has (-M rows); named future works (-F) come on top where they are built."""


class Row(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One mechanism: how far it is built, and the tests that prove it, as ``tests/file.py::test_name``."""

    id: str
    mechanism: str
    tests: tuple[str, ...]
    status: Literal["built", "simulator only", "partly", "not built"] = "built"
    why: str = ""


class _File(msgspec.Struct, forbid_unknown_fields=True):
    row: tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class Mechanisms:
    """The rows of one file."""

    paper: str
    rows: tuple[Row, ...]


def read_mechanisms() -> tuple[Mechanisms, ...]:
    """Return the rows of all papers, by the names of their folders."""
    found = sorted(Path(__file__).parent.glob("*/mechanisms.toml"))
    return tuple(_read(file.parent.name, file.read_bytes()) for file in found)


def _read(paper: str, text: bytes) -> Mechanisms:
    try:
        rows = msgspec.toml.decode(text, type=_File).row
    except msgspec.DecodeError as error:
        raise InputError(f"papers/{paper}/mechanisms.toml: {error}") from error
    return Mechanisms(paper, rows)


def missing_tests(row: Row, root: Path) -> list[str]:
    """Return those tests of `row` that are not there, below the folder `root`."""
    return [test for test in row.tests if not _exists(test, root)]


def _exists(test: str, root: Path) -> bool:
    """Look the test up in the text of its file: a function, or a class and a function of it."""
    file, *names = test.split("::")
    path = root / file
    if not names or not path.is_file():
        return False
    body = ast.parse(path.read_text()).body
    for name in names:
        named = [
            node
            for node in body
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name
        ]
        if not named:
            return _is_assigned(body, name)
        body = named[-1].body
    return True


def _is_assigned(body: list[ast.stmt], name: str) -> bool:
    """Say whether `name` is given to something, as Hypothesis' ``TestMachine = Machine.TestCase`` is."""
    return any(
        isinstance(target, ast.Name) and target.id == name
        for node in body
        if isinstance(node, ast.Assign)
        for target in node.targets
    )
