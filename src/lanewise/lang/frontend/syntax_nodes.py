"""Nodes of Python's syntax trees: found quickly, and made at the place of another node.

The functions of `ast` ask each field of each node what it holds, and parse text to make nodes. The first
launch of a kernel waits until all of its functions are rewritten, and these are several times faster.
"""

import ast
import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

#: Fields that never hold a node with a name, a statement or an expression in it.
_LEAVES = frozenset(["ctx", "op", "ops", "id", "attr", "kind", "type_comment"])
#: For each class of nodes, the fields in which other nodes can be.
_FIELDS: dict[type, tuple[str, ...]] = {ast.Constant: ()}
_LOAD, _STORE = ast.Load(), ast.Store()


@contextmanager
def without_collections() -> Iterator[None]:
    """Let Python's cyclic garbage collector rest while trees are made and compiled.

    Trees have no cycles and are freed at once. So many new objects would have the collector go through all
    objects of the process, which takes longer than the trees.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def child_fields(node: ast.AST) -> tuple[str, ...]:
    """Return the names of the fields in which a node can have other nodes."""
    kind = type(node)
    fields = _FIELDS.get(kind)
    if fields is None:
        fields = _FIELDS[kind] = tuple(field for field in kind._fields if field not in _LEAVES)
    return fields


def children(node: ast.AST) -> list[Any]:
    """Return the nodes inside a node, without operators and contexts.

    >>> [type(child).__name__ for child in children(ast.parse("a + b").body[0].value)]
    ['Name', 'Name']
    """
    nodes: list[object] = []
    for name in child_fields(node):
        value = getattr(node, name, None)
        if value.__class__ is list:
            nodes += [child for child in value if isinstance(child, ast.AST)]
        elif isinstance(value, ast.AST):
            nodes.append(value)
    return nodes


def walk(node: ast.AST) -> list[Any]:
    """Return a node and all nodes inside it, each before those inside it."""
    nodes = [node]
    for parent in nodes:  # it grows meanwhile
        nodes += children(parent)
    return nodes


class NodesAt:
    """Makes nodes that have the place of another one in the source."""

    def __init__(self, at: Any) -> None:
        self.place = {
            "lineno": at.lineno,
            "col_offset": at.col_offset,
            "end_lineno": at.end_lineno,
            "end_col_offset": at.end_col_offset,
        }

    def constant(self, value: Any) -> ast.Constant:
        """Return a constant: a number, a text, None, or a tuple of them."""
        return ast.Constant(value, **self.place)

    def name(self, name: str) -> ast.Name:
        """Return a name that is read."""
        return ast.Name(name, _LOAD, **self.place)

    def bound(self, name: str) -> ast.Name:
        """Return a name that an assignment binds."""
        return ast.Name(name, _STORE, **self.place)

    def attribute(self, owner: str, name: str) -> ast.Attribute:
        """Return an attribute that is read: `owner.name`."""
        return ast.Attribute(self.name(owner), name, _LOAD, **self.place)

    def call(self, owner: str, method: str, *arguments: ast.expr) -> ast.Call:
        """Return a call of a method: `owner.method(arguments)`."""
        return ast.Call(self.attribute(owner, method), list(arguments), [], **self.place)

    def call_with_locals(self, owner: str, method: str, *arguments: ast.expr) -> ast.Call:
        """Return a call of a method that gets the local variables first."""
        return self.call(owner, method, ast.Call(self.name("locals"), [], [], **self.place), *arguments)

    def function(self, value: ast.expr) -> ast.Lambda:
        """Return a function of no arguments that evaluates an expression when it is called."""
        none = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
        return ast.Lambda(none, value, **self.place)

    def expression(self, value: ast.expr) -> ast.Expr:
        """Return an expression as a statement."""
        return ast.Expr(value, **self.place)

    def assignment(self, name: str, value: ast.expr) -> ast.Assign:
        """Return an assignment to one name: `name = value`."""
        return ast.Assign([self.bound(name)], value, **self.place)

    def assignments(self, names: tuple[str, ...], value: ast.expr) -> ast.stmt:
        """Return `(names,) = value`; the value alone if there are no names."""
        if not names:
            return self.expression(value)
        target = ast.Tuple([self.bound(name) for name in names], _STORE, **self.place)
        return ast.Assign([target], value, **self.place)

    def branch(self, test: ast.expr, body: list[ast.stmt]) -> ast.If:
        """Return a branch without an else: `if test: body`."""
        return ast.If(test, body, [], **self.place)
