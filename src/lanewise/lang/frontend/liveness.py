"""Which names a branch or a loop has to carry: those it binds and something reads later.

Works on the syntax tree of one function; what is done with the names is left to `rewrite.py`.
"""

import ast
from collections.abc import Iterable, Sequence
from typing import Any, cast

from lanewise.lang.frontend.syntax_nodes import children, walk
from lanewise.records import record

Names = frozenset[str]
NONE: Names = frozenset()
#: Statements with statements in them: what is found of these is kept, as those around them ask again.
_COMPOUND = frozenset([ast.If, ast.While, ast.For, ast.With])
_FUNCTIONS = frozenset([ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda])
_DEFINITIONS = frozenset([ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef])
#: Expressions with names of their own; only `:=` in them binds names outside.
_COMPREHENSIONS = frozenset([ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp])


@record(frozen=True)
class Carried:
    """Of one `if`, `while` or `for`: names `bound` in it and read later; names `read` in it besides.

    `restored` are names that one branch of an `if` binds and the other reads, but nothing after them. `live`
    are all names that something may read later.
    """

    bound: tuple[str, ...]
    read: tuple[str, ...]
    restored: tuple[str, ...] = ()
    live: tuple[str, ...] = ()


def reads(node: ast.AST | None, known: dict[ast.AST, Names] | None = None) -> Names:
    """Return the names that a tree reads; of a function inside it those that are not its own.

    `known` keeps the names of statements that do not change meanwhile.

    >>> sorted(reads(ast.parse("a[i] = b + 1")))
    ['a', 'b', 'i']
    >>> sorted(reads(ast.parse("def f(x):\\n    y = x + z\\n    return y")))
    ['z']
    """
    if node is None:
        return NONE
    known = {} if known is None else known
    names = known.get(node)
    if names is None:
        collected: set[str] = set()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            collected |= _read_by_function(node, known)
        else:
            _collect_reads([node], known, collected)
        names = known[node] = frozenset(collected)
    return names


def _collect_reads(nodes: Iterable[ast.AST], known: dict[ast.AST, Names], names: set[str]) -> None:
    """Add the names that trees read to `names`."""
    for node in nodes:
        kind = type(node)
        if kind is ast.Name:
            name = cast(ast.Name, node)
            if type(name.ctx) is ast.Load:
                names.add(name.id)
        elif kind in _COMPOUND and node in known:
            names |= known[node]
        elif kind in _FUNCTIONS:
            names |= reads(node, known)
        elif kind in _COMPOUND:
            inside: set[str] = set()
            _collect_reads(children(node), known, inside)
            known[node] = frozenset(inside)
            names |= inside
        elif kind in _COMPREHENSIONS:
            generators = cast(ast.ListComp, node).generators
            own: set[str] = set()
            _collect_reads(children(node), known, own)
            own -= binds(generator.target for generator in generators)
            _collect_reads([generators[0].iter], known, own)  # which is evaluated outside
            names |= own
        else:
            _collect_reads(children(node), known, names)


def _read_by_function(node: Any, known: dict[ast.AST, Names]) -> set[str]:
    """Return the names that a function or lambda reads and that are not its own."""
    inside: set[str] = set()
    _collect_reads(children(node), known, inside)
    arguments = {part.arg for part in walk(node.args) if isinstance(part, ast.arg)}
    body = [node.body] if isinstance(node, ast.Lambda) else node.body
    outer = {
        name for part in walk(node) if isinstance(part, ast.Nonlocal | ast.Global) for name in part.names
    }
    # What surrounds the function's body, such as defaults and annotations, is read outside.
    around: set[str] = set()
    _collect_reads(
        [node.args] if isinstance(node, ast.Lambda) else [node.args, *node.decorator_list], known, around
    )
    return around | (inside - ((arguments | binds(body)) - outer))


def binds(nodes: Iterable[ast.AST], known: dict[ast.AST, Names] | None = None) -> Names:
    """Return the names that statements bind, nested functions' own names left out."""
    names: set[str] = set()
    _collect_bound(nodes, {} if known is None else known, names)
    return frozenset(names)


def _collect_bound(nodes: Iterable[Any], known: dict[ast.AST, Names], names: set[str]) -> None:
    """Add the names that trees bind to `names`."""
    for node in nodes:
        kind = type(node)
        if kind is ast.Name:
            if type(node.ctx) is ast.Store:
                names.add(node.id)
        elif kind in _DEFINITIONS:
            names.add(node.name)
        elif kind in _COMPREHENSIONS:
            names |= {part.target.id for part in walk(node) if isinstance(part, ast.NamedExpr)}
        elif kind in _COMPOUND:
            if node not in known:
                inside: set[str] = set()
                _collect_bound(children(node), known, inside)
                known[node] = frozenset(inside)
            names |= known[node]
        else:
            _collect_bound(children(node), known, names)
            if kind is ast.alias:
                names.add((node.asname or node.name).split(".")[0])


class Liveness:
    """Walks a function backwards; `carried` has the answer for each `if`, `while` and `for` in it."""

    def __init__(self, function: ast.FunctionDef) -> None:
        self.carried: dict[ast.AST, Carried] = {}
        self._loops: list[tuple[Names, Names]] = []
        self._known_reads: dict[ast.AST, Names] = {}
        self._known_binds: dict[ast.AST, Names] = {}
        # what a function inside this one reads may be read whenever that is called
        self._captured = frozenset[str]().union(
            *(
                self._reads(node)
                for statement in function.body
                for node in walk(statement)
                if isinstance(node, ast.FunctionDef | ast.Lambda)
            )
        )
        self._statements(function.body, NONE)

    def _reads(self, node: ast.AST | None) -> Names:
        return reads(node, self._known_reads)

    def _binds(self, nodes: Iterable[ast.AST]) -> Names:
        return binds(nodes, self._known_binds)

    def _statements(self, statements: list[ast.stmt], after: Names) -> Names:
        for statement in reversed(statements):
            after = self._statement(statement, after)
        return after

    def _statement(self, node: ast.stmt, after: Names) -> Names:
        match node:
            case ast.If():
                other = self._statements(node.orelse, after)
                inside = self._statements(node.body, after) | other
                restored = (self._binds(node.body) & other) - after
                self._carry(node, [*node.body, *node.orelse], after, restored=restored)
                return inside | self._reads(node.test)
            case ast.While():
                return self._loop(node, node.test, NONE, after)
            case ast.For():
                head = self._loop(node, None, self._binds([node.target]), after)
                return head | self._reads(node.iter)
            case ast.Return():
                return self._reads(node.value)
            case ast.Break():
                return self._loops[-1][1] if self._loops else after
            case ast.Continue():
                return self._loops[-1][0] if self._loops else after
            case ast.With():
                items = frozenset[str]().union(*(self._reads(item.context_expr) for item in node.items))
                return self._statements(node.body, after) - self._binds(node.items) | items
            case ast.AugAssign():
                own = {node.target.id} if isinstance(node.target, ast.Name) else NONE
                return after | own | self._reads(node)
            case ast.FunctionDef() | ast.ClassDef():
                return (after - {node.name}) | self._reads(node)
        return (after - self._binds([node])) | self._reads(node)

    def _loop(self, node: ast.While | ast.For, test: ast.expr | None, targets: Names, after: Names) -> Names:
        head = after | self._reads(test)
        while True:
            self._loops.append((head, after))
            inside = self._statements(node.body, head) - targets
            self._loops.pop()
            if inside <= head:
                break
            head |= inside
        self._statements(node.orelse, after)
        bound = [*node.body, node.target] if isinstance(node, ast.For) else [*node.body]
        self._carry(node, [*bound, *([test] if test is not None else [])], head)
        return head

    def _carry(self, node: ast.stmt, nodes: Sequence[ast.AST], live: Names, restored: Names = NONE) -> None:
        bound = self._binds(nodes) & (live | self._captured)
        restored -= bound  # a function inside may still read such a name
        read = frozenset[str]().union(*(self._reads(node) for node in nodes)) - bound - restored
        if isinstance(node, ast.For | ast.While):
            read -= self._binds(nodes)  # every round binds these before it reads them
        live |= self._captured
        self.carried[node] = Carried(*(tuple(sorted(names)) for names in (bound, read, restored, live)))
