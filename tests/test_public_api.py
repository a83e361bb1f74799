"""The public names: declared, importable, and cheap (no JVM, no web server, no plots)."""

from __future__ import annotations

import subprocess
import sys

import pytest

import evenflow


def test_all_names_that_are_promised_exist() -> None:
    assert sorted(evenflow.__all__) == sorted(set(evenflow.__all__))
    missing = [name for name in evenflow.__all__ if not hasattr(evenflow, name)]
    assert missing == []


def test_importing_evenflow_starts_nothing_heavy() -> None:
    heavy = ("pyspark", "py4j", "matplotlib", "PIL", "pandas", "scipy", "typer", "rich")
    code = f"import sys, evenflow; print([name for name in {heavy!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "skewness",
            r"evenflow has no 'skewness': its aggregates are approx_count.* keyed\(\.\.\.\)\.apply\(operator\)\.$",
        ),
        ("keyd", "Did you mean 'keyed'"),
        ("summ", "Did you mean 'sum'"),
    ],
)
def test_a_name_that_is_not_there_says_what_is(name: str, message: str) -> None:
    with pytest.raises(AttributeError, match=message):
        getattr(evenflow, name)
    assert not hasattr(evenflow, name)
