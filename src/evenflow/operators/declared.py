"""What every operator of the user's own declares, whatever its kind: looked at before anything runs."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from evenflow.errors import InputError
from evenflow.model.signatures import takes


def check_declared(operator: Any) -> None:
    """Refuse a name, a version, an upgrade or columns that cannot be."""
    name = type(operator).__name__
    declared = operator.name
    if declared is not None and not (isinstance(declared, str) and declared):
        raise InputError(f"{name}.name is a text, or None for the class's, got {declared!r}")
    version = operator.version
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise InputError(f"{name}.version is a number from 1 on, got {version!r}")
    if not takes(operator.upgrade, 2):
        raise InputError(f"{name}.upgrade must take a state and its version: def upgrade(self, state, version)")
    needed = operator.columns_needed
    if needed is not None and not (
        isinstance(needed, tuple | list) and all(isinstance(column, str) for column in needed)
    ):
        raise InputError(
            f"{name}.columns_needed is a tuple of names such as ('price',), or None for all; got {needed!r}"
        )


def declared_columns(operator: Any, name: str, attribute: str) -> pa.Schema:
    """Return the columns that an operator declares, which must be in Arrow's form by now."""
    declared = getattr(operator, attribute, None)
    if not isinstance(declared, pa.Schema):
        raise InputError(
            f"{name}.{attribute} must be a pyarrow.Schema here, got {declared!r}; "
            "a Spark DDL string is understood only where a Spark session can read it, in ef.keyed(...).apply(...)"
        )
    return declared


def check_inputs(operator: Any, name: str, schema: pa.Schema) -> None:
    """Refuse columns that the operator needs and the input lacks."""
    for column in operator.columns_needed or ():
        if schema.get_field_index(column) < 0:
            raise InputError(f"{name} needs the column {column!r}; the input has {', '.join(schema.names)}")
