"""An operator around another: it is the other one in all that it does not say otherwise."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, cast

import pyarrow as pa

from evenflow.operators import Operator, Resident


@dataclass(frozen=True)
class AroundOperator(ABC):
    """An operator whose lanes hold its state in another way; else it is the operator within."""

    operator: Operator

    def __getattr__(self, name: str) -> Any:
        """Be the operator within; an attribute of its own is asked for here only while it is unpickled."""
        if name.startswith("__") or name in self.__dataclass_fields__:
            raise AttributeError(name)
        return getattr(self.operator, name)

    def open(self, schema: pa.Schema, keys: tuple[str, ...], slots: int) -> Resident:
        """Return the state of a lane."""
        return cast("Resident", self.around(self.operator.open(schema, keys, slots)))

    @abstractmethod
    def around(self, resident: Resident) -> AroundResident:
        """Return state that is held in this operator's way."""


class AroundResident:
    """State that is the state within."""

    def __init__(self, resident: Resident) -> None:
        """Hold the state within."""
        self.resident = resident

    def __getattr__(self, name: str) -> Any:
        """Be the state within."""
        return getattr(self.resident, name)
