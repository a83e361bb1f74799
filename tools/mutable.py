"""Which places of a module mutation testing leaves alone, and which lines a change at a line concerns."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

Position = tuple[int, int]  # a line, and a column in it

# `==` and `is` are the same for enums, small numbers and None: neither is tried in place of the other.
_SAME = re.compile("core/ReplaceComparisonOperator_(Eq_Is|Is_Eq|NotEq_IsNot|IsNot_NotEq)$")
_TUNED = re.compile("core/(NumberReplacer|ReplaceBinaryOperator_|ReplaceUnaryOperator_)")
_FORM = {"frozen", "slots", "gc", "order", "forbid_unknown_fields"}  # what a class of values does not let happen


class Span(NamedTuple):
    """A part of a module."""

    first: Position
    end: Position

    @classmethod
    def of(cls, node: ast.expr | ast.stmt | ast.keyword | ast.arg) -> Span:
        """Return where a node stands."""
        return cls((node.lineno, node.col_offset), (node.end_lineno or node.lineno, node.end_col_offset or 0))

    def __contains__(self, position: object) -> bool:
        return isinstance(position, tuple) and self.first <= position < self.end


class Places:
    """The source of a module, as far as changes of it are concerned."""

    def __init__(self, source: str) -> None:
        tree = ast.parse(source)
        nodes = list(ast.walk(tree))
        self._headers = [
            Span((node.lineno, node.col_offset), Span.of(node.body[0]).first)
            for node in nodes
            if isinstance(node, ast.FunctionDef)
        ]
        self._defaults = [
            Span.of(default)
            for node in nodes
            if isinstance(node, ast.FunctionDef)
            for default in (*node.args.defaults, *node.args.kw_defaults)
            if default is not None
        ]
        self._texts = [span for node in nodes for span in _untried(node)]
        self._stars = {(node.lineno, node.col_offset) for node in nodes if isinstance(node, ast.Starred)}
        self._constants = [Span.of(node) for node in tree.body if isinstance(node, ast.Assign | ast.AnnAssign)]
        self._statements = [node for node in nodes if isinstance(node, ast.stmt)]

    def tried(self, position: Position, operator: str) -> bool:
        """Return whether an operator's change at a position can change what the module does."""
        if _SAME.match(operator) or position in self._stars or any(position in span for span in self._texts):
            return False
        if _TUNED.match(operator) and any(position in span for span in self._constants):
            return False
        signature = any(position in span for span in self._headers)
        return not signature or any(position in span for span in self._defaults)

    def lines(self, line: int) -> range:
        """Return the lines of the statement that a line belongs to: a function's signature goes with its body."""
        around = [node for node in self._statements if node.lineno <= line <= (node.end_lineno or node.lineno)]
        if not around:  # a decorator
            return range(line, line + 1)
        inner = max(around, key=lambda node: (node.lineno, -(node.end_lineno or 0)))
        return range(inner.lineno, _end(inner) + 1)


def _end(node: ast.stmt) -> int:
    """Return the last line of a statement, without the body of an `if`, a loop or a class."""
    for part in ("test", "iter", "subject"):
        head = getattr(node, part, None)
        if isinstance(head, ast.expr) and hasattr(node, "body"):
            return head.end_lineno or node.lineno
    if isinstance(node, ast.With):
        return node.items[-1].context_expr.end_lineno or node.lineno
    if isinstance(node, ast.ClassDef | ast.Try):
        return node.lineno
    return node.end_lineno or node.lineno


def _untried(node: ast.AST) -> Iterator[Span]:
    """Yield what of a node is never executed, is a text for people, or forbids what nobody does."""
    match node:
        case ast.AnnAssign(annotation=annotation):
            yield Span.of(annotation)
        case ast.JoinedStr():
            yield Span.of(node)
        case ast.Assign(value=ast.BinOp(op=ast.BitOr(), left=ast.Name(id=name))) if name[:1].isupper():  # a type
            yield Span.of(node)
        case ast.ClassDef(keywords=keywords, decorator_list=decorators):
            forms = [*keywords, *(word for each in decorators if isinstance(each, ast.Call) for word in each.keywords)]
            yield from (Span.of(word) for word in forms if word.arg in _FORM)
        case _:
            pass
