"""An operator around another: it is the other one in all that it does not say otherwise."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Generic, Self, TypeVar, cast

import pyarrow as pa

from evenflow.model import Contents
from evenflow.operators import Operator, Resident

_Around = TypeVar("_Around", bound="AroundOperator")


class AroundResident(Generic[_Around]):
    """State that is the state within, held as `around` says."""

    def __init__(self, resident: Resident, around: _Around) -> None:
        """Hold the state within."""
        self.resident, self.around = resident, around

    def __getattr__(self, name: str) -> Any:
        """Be the state within."""
        return getattr(self.resident, name)


@dataclass(frozen=True)
class AroundOperator:
    """An operator whose lanes hold its state in another way; else it is the operator within."""

    held_as: ClassVar[type[AroundResident[Any]]] = AroundResident

    operator: Operator

    def __getattr__(self, name: str) -> Any:
        """Be the operator within; an attribute of its own is asked for here only while it is unpickled."""
        if name.startswith("__") or name in self.__dataclass_fields__:
            raise AttributeError(name)
        return getattr(self.operator, name)

    def __str__(self) -> str:
        """Look like the operator within."""
        return str(self.operator)

    def resumed(self, contents: Contents) -> Self:
        """Return the same around the operator as it goes on."""
        return replace(self, operator=self.operator.resumed(contents))

    def open(self, schema: pa.Schema, keys: tuple[str, ...], slots: int) -> Resident:
        """Return the state of a lane."""
        return cast("Resident", self.held_as(self.operator.open(schema, keys, slots), self))
