"""Which names a branch or a loop has to carry: those it binds and something reads later.

Works on the syntax tree of one function; what is done with the names is left to `rewrite.py`.
"""

import ast
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from lanewise.lang.frontend.syntax_nodes import children, walk
from lanewise.records import record

Names = frozenset[str]
NONE: Names = frozenset()
#: Statements with statements in them: their names are kept, as those around them ask again.
_COMPOUND = frozenset([ast.If, ast.While, ast.For, ast.With])
_FUNCTIONS = frozenset([ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda])
#: Expressions with names of their own; only `:=` in them binds names outside.
_COMPREHENSIONS = frozenset([ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp])


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


class Uses(NamedTuple):
    """The names that a tree reads, and those that it binds."""

    reads: Names
    binds: Names


def uses(node: ast.AST, known: dict[ast.AST, Uses] | None = None) -> Uses:
    """Return the names that a tree reads and binds; of a function inside it those that are not its own.

    `known` keeps those of statements and functions, which do not change meanwhile.

    >>> tree = uses(ast.parse("a[i] = x = b + 1"))
    >>> sorted(tree.reads), sorted(tree.binds)
    (['a', 'b', 'i'], ['x'])
    >>> sorted(uses(ast.parse("def f(x):\\n    y = x + z\\n    return y")).reads)
    ['z']
    """
    known = {} if known is None else known
    names = known.get(node)
    if names is None:
        reads: set[str] = set()
        binds: set[str] = set()
        if type(node) in _FUNCTIONS:
            reads, binds = _read_by_function(node, known), _bound_by_function(node)
        elif type(node) in _COMPOUND:  # which would look itself up
            _collect(children(node), known, reads, binds)
        else:
            _collect([node], known, reads, binds)
        names = known[node] = Uses(frozenset(reads), frozenset(binds))
    return names


def _collect(nodes: Iterable[Any], known: dict[ast.AST, Uses], reads: set[str], binds: set[str]) -> None:
    """Add the names that trees read to `reads`, and those that they bind to `binds`."""
    for node in nodes:
        kind = type(node)
        if kind is ast.Name:
            context = type(node.ctx)
            if context is ast.Load:
                reads.add(node.id)
            elif context is ast.Store:
                binds.add(node.id)
        elif kind in _COMPOUND or kind in _FUNCTIONS:
            inner = uses(node, known)
            reads |= inner.reads
            binds |= inner.binds
        elif kind in _COMPREHENSIONS:
            own: set[str] = set()
            _collect(children(node), known, own, set())
            own -= _bound([generator.target for generator in node.generators], known)
            _collect([node.generators[0].iter], known, own, set())  # which is evaluated outside
            reads |= own
            binds |= _bound_by_walrus(node)
        elif kind is ast.ClassDef:
            _collect(children(node), known, reads, set())
            binds.add(node.name)
        else:
            _collect(children(node), known, reads, binds)
            if kind is ast.alias:
                binds.add((node.asname or node.name).split(".")[0])


def _bound(nodes: Iterable[ast.AST], known: dict[ast.AST, Uses]) -> Names:
    """Return the names that trees bind."""
    return NONE.union(*[uses(node, known).binds for node in nodes])


def _bound_by_walrus(node: ast.AST) -> set[str]:
    """Return the names that `:=` binds in an expression."""
    return {part.target.id for part in walk(node) if isinstance(part, ast.NamedExpr)}


def _bound_by_function(node: Any) -> set[str]:
    """Return the name of a function; of a lambda, the names that `:=` binds in it."""
    return _bound_by_walrus(node) if type(node) is ast.Lambda else {node.name}


def _read_by_function(node: Any, known: dict[ast.AST, Uses]) -> set[str]:
    """Return the names that a function or lambda reads and that are not its own."""
    inside: set[str] = set()
    _collect(children(node), known, inside, set())
    arguments = {part.arg for part in walk(node.args) if isinstance(part, ast.arg)}
    body = [node.body] if isinstance(node, ast.Lambda) else node.body
    outer = {
        name for part in walk(node) if isinstance(part, ast.Nonlocal | ast.Global) for name in part.names
    }
    # What surrounds the function's body, such as defaults and annotations, is read outside.
    around: set[str] = set()
    _collect([node.args, *getattr(node, "decorator_list", ())], known, around, set())
    return around | (inside - ((arguments | _bound(body, known)) - outer))


class Liveness:
    """Walks a function backwards; `carried` has the answer for each `if`, `while` and `for` in it."""

    def __init__(self, function: ast.FunctionDef) -> None:
        self.carried: dict[ast.AST, Carried] = {}
        self._loops: list[tuple[Names, Names]] = []
        self._known: dict[ast.AST, Uses] = {}
        for statement in function.body:
            uses(statement, self._known)
        # what a function inside this one reads may be read whenever that is called
        self._captured = NONE.union(
            *[names.reads for node, names in self._known.items() if type(node) in _FUNCTIONS]
        )
        self._statements(function.body, NONE)

    def _reads(self, node: ast.AST | None) -> Names:
        return NONE if node is None else uses(node, self._known).reads

    def _binds(self, nodes: Iterable[ast.AST]) -> Names:
        return _bound(nodes, self._known)

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
                items = NONE.union(*(self._reads(item.context_expr) for item in node.items))
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
        read = NONE.union(*(self._reads(node) for node in nodes)) - bound - restored
        if isinstance(node, ast.For | ast.While):
            read -= self._binds(nodes)  # every round binds these before it reads them
        live |= self._captured
        self.carried[node] = Carried(*(tuple(sorted(names)) for names in (bound, read, restored, live)))
