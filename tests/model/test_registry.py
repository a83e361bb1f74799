"""Options of things by name: their names and their types."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest

from evenflow.errors import InputError, UnknownNameError
from evenflow.model.registry import build_named


@dataclass(frozen=True)
class Brake:
    name: ClassVar[str] = "hand"
    most: int = 1
    share: float | None = None
    sharp: bool = False


def brake(**options: Any) -> Brake:
    return build_named("brake", "hand", {"hand": Brake}, options)


@pytest.mark.parametrize(
    ("option", "value", "kept"),
    [
        ("most", 3, 3),
        ("most", 1e6, 1_000_000),
        ("most", np.int64(3), 3),
        ("share", 1, 1.0),
        ("share", 0.5, 0.5),
        ("share", np.float64(0.5), 0.5),
        ("share", None, None),
        ("sharp", True, True),
    ],
)
def test_an_option_has_the_type_of_its_field(option: str, value: Any, kept: Any) -> None:
    found = getattr(brake(**{option: value}), option)
    assert found == kept
    assert type(found) is type(kept)


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("most", "abc", "brake hand cannot use most = 'abc': it expects int"),
        ("most", 1.5, "most = 1.5: it expects int"),
        ("most", None, "most = None: it expects int"),
        ("most", True, "most = True: it expects int"),
        ("share", "nan", r"share = 'nan': it expects float \| None"),
        ("share", [1], r"share = \[1\]: it expects float \| None"),
        ("sharp", 1, "sharp = 1: it expects bool"),
    ],
)
def test_an_option_of_another_type_is_told_what_was_expected(option: str, value: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        brake(**{option: value})


def test_an_unknown_name_or_option_is_told_those_that_are_known() -> None:
    with pytest.raises(UnknownNameError, match="no brake named 'foot'"):
        build_named("brake", "foot", {"hand": Brake}, {})
    with pytest.raises(UnknownNameError, match=r"option of brake hand named 'mst'.*Did you mean 'most'"):
        brake(mst=1)
