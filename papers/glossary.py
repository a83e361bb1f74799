"""What short ids stand for: the papers' parameters (-P) and the places where their text is open or errs (-A)."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

_ID = re.compile(r"\b(AF|LR|GZ|FX|DP)-[A-Z]\d+(?:(?:, | and | to )[A-Z]\d+\b)*")
_PART = re.compile(r"[AP]\d+")


def ids_in(text: str) -> list[str]:
    """Return the ids of parameters and readings in `text`, each once, in order; also those of "GZ-P5, P10"."""
    found = {f"{match[1]}-{part}" for match in _ID.finditer(text) for part in _PART.findall(match[0][3:])}
    return sorted(found, key=lambda id_: (id_[:4], int(id_[4:])))


def read_glossary() -> dict[str, str]:
    """Return what each id stands for."""
    text = Path(__file__).with_name("glossary.toml").read_bytes()
    return msgspec.toml.decode(text, type=dict[str, str])
