"""The rewrite of a kernel's syntax tree: control flow becomes calls that decide, while tracing, what it is.

`if`, `while`, `for`, `and`, `or`, `not`, `a if c else b`, chains of comparisons and `assert` ask the runtime
(`control_flow.py`) whether their value is traced; if not, plain Python happens.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from lanewise.lang.frontend.liveness import Carried, Liveness
from lanewise.lang.frontend.syntax_nodes import NodesAt, child_fields, walk
from lanewise.lang.trace.traced import RUNTIME_NAME

_RESULT = "__result"
#: Constructs that kernels do not have, and the words for them.
_UNSUPPORTED = {
    ast.Try: "try", ast.TryStar: "try", ast.Match: "match", ast.AsyncFor: "async for",
    ast.AsyncWith: "async with",
    ast.Yield: "yield", ast.YieldFrom: "yield from", ast.Await: "await", ast.Global: "global",
    ast.Nonlocal: "nonlocal", ast.AsyncFunctionDef: "async def", ast.ClassDef: "class", ast.Delete: "del",
    ast.Raise: "raise",
}  # fmt: skip
_INSTEAD = {
    "match": "write `if`, `elif` and `else`",
    "raise": "`assert` stops a kernel, and the trace where its condition is Python's",
}
_NOTHING = "it has no meaning on a GPU"
#: Where statements have statements inside them.
_BLOCKS = ("body", "orelse")


class Unsupported(Exception):
    """The error for a construct that kernels do not have, with its line."""

    def __init__(self, message: str, node: Any) -> None:
        self.line = node.lineno
        super().__init__(message)


def rewrite(function: ast.FunctionDef, is_kernel: bool) -> ast.FunctionDef:
    """Return the function with its control flow turned into calls of the runtime."""
    for node in walk(function):
        word = _UNSUPPORTED.get(type(node))
        if word is not None:
            raise Unsupported(f"`{word}` does not work in a kernel: {_INSTEAD.get(word, _NOTHING)}", node)
    if not is_kernel:
        function.body = _returns_last(function.body, function)
    return _Rewriter(function, is_kernel).function()


def _ends(statements: list[ast.stmt]) -> bool:
    """Return whether every path through statements ends in a return."""
    if not statements:
        return False
    last = statements[-1]
    if isinstance(last, ast.Return):
        return True
    return isinstance(last, ast.If) and _ends(last.body) and _ends(last.orelse)


def _has_return(statement: Any) -> bool:
    """Return whether a statement returns from its function; functions inside it do not count."""
    if isinstance(statement, ast.FunctionDef):
        return False
    return isinstance(statement, ast.Return) or any(
        _has_return(inner) for name in _BLOCKS for inner in getattr(statement, name, ())
    )


def _returns_last(statements: list[ast.stmt], function: ast.FunctionDef) -> list[ast.stmt]:
    """Return statements whose returns come last: what follows an `if` moves into its branches."""
    for number, node in enumerate(statements):
        if isinstance(node, ast.While | ast.For) and _has_return(node):
            raise Unsupported(
                "a @lw.device function cannot return out of a loop: break, and return after it", node
            )
        if not isinstance(node, ast.If) or not _has_return(node):
            continue
        rest = statements[number + 1 :]
        body = node.body if _ends(node.body) else [*node.body, *rest]
        orelse = node.orelse if _ends(node.orelse) else [*node.orelse, *rest]
        node.body = _returns_last(body, function)
        node.orelse = _returns_last(orelse, function) or [ast.copy_location(ast.Pass(), node)]
        return [*statements[:number], node]
    return statements


class _Rewriter:
    """Rewrites one function, with the names that its branches and loops carry at hand."""

    def __init__(self, function: ast.FunctionDef, is_kernel: bool) -> None:
        self.node, self.is_kernel = function, is_kernel
        self.parameters = {argument.arg for argument in walk(function.args) if isinstance(argument, ast.arg)}
        self.device_result = not is_kernel and any(
            isinstance(statement, ast.If) and _has_return(statement) for statement in function.body
        )
        if self.device_result:
            function.body = self._results(function.body)
        self.carried = Liveness(function).carried
        #: Branches and loops around the statement that is being rewritten.
        self.depth = 0
        self.loops: list[str] = []

    def _results(self, statements: list[ast.stmt]) -> list[ast.stmt]:
        """Return statements with `__result = x` for `return x`, and one return at the end."""

        def assigned(node: Any) -> Any:
            if isinstance(node, ast.Return):
                nodes = NodesAt(node)
                return nodes.assignment(_RESULT, node.value or nodes.constant(None))
            if not isinstance(node, ast.FunctionDef):
                for name in _BLOCKS:
                    if hasattr(node, name):
                        setattr(node, name, [assigned(inner) for inner in getattr(node, name)])
            return node

        made = [assigned(statement) for statement in statements]
        first, last = NodesAt(made[0]), NodesAt(made[-1])
        result = ast.copy_location(ast.Return(last.name(_RESULT)), made[-1])
        return [first.assignment(_RESULT, first.constant(None)), *made, result]

    def function(self) -> ast.FunctionDef:
        """Return the rewritten function, without the original's decorators, annotations and defaults."""
        node = self.node
        body = node.body
        if body and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
            body = body[1:]
        node.body = self._statements(body) or [ast.copy_location(ast.Pass(), node)]
        node.decorator_list, node.returns = [], None
        arguments = node.args
        everyone = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
        for argument in (*everyone, arguments.vararg, arguments.kwarg):
            if argument is not None:
                argument.annotation = None
        none = NodesAt(node).constant(None)
        arguments.defaults = [none for _ in arguments.defaults]
        arguments.kw_defaults = [default and none for default in arguments.kw_defaults]
        return node

    # the walk over the tree -----------------------------------------------------------------------------

    def visit(self, node: ast.AST) -> Any:
        """Return what becomes of a node: another one, or a list of statements."""
        method = _METHODS.get(type(node))
        return self.generic_visit(node) if method is None else method(self, node)

    def generic_visit(self, node: ast.AST) -> ast.AST:
        """Rewrite the nodes inside a node, which stays itself."""
        for name in child_fields(node):
            value = getattr(node, name, None)
            if isinstance(value, list):
                made: list[object] = []
                for child in value:
                    visited = self.visit(child) if isinstance(child, ast.AST) else child
                    if isinstance(visited, list):
                        made += visited
                    else:
                        made.append(visited)
                value[:] = made
            elif isinstance(value, ast.AST):
                setattr(node, name, self.visit(value))
        return node

    def _name(self, stem: str) -> str:
        """Return the name of a variable that one branch or loop has to itself, until `_leave`.

        Those that follow each other share one: `locals()`, which all of them ask for, stays small.
        """
        self.depth += 1
        return f"__{stem}{self.depth}"

    def _leave(self) -> None:
        """End the use of the name that `_name` gave last."""
        self.depth -= 1

    def _statements(self, statements: list[ast.stmt]) -> list[ast.stmt]:
        """Return statements rewritten, each after a call that notes its line."""
        made: list[ast.stmt] = []
        for statement in statements:
            if not isinstance(statement, ast.FunctionDef | ast.Pass | ast.Import | ast.ImportFrom):
                nodes = NodesAt(statement)
                line, column = nodes.constant(statement.lineno), nodes.constant(statement.col_offset + 1)
                made.append(nodes.expression(nodes.call(RUNTIME_NAME, "at", line, column)))
            visited = self.visit(statement)
            made += visited if isinstance(visited, list) else [visited]
            if isinstance(statement, ast.Return | ast.Break | ast.Continue):
                break  # what follows is never reached
        return made

    def _if_traced(self, flow: str, statement: ast.stmt, nodes: NodesAt) -> ast.If:
        """Return a statement under the condition that a branch or loop is traced."""
        return nodes.branch(nodes.attribute(flow, "traced"), [statement])

    def _bind(self, names: tuple[str, ...], flow: str, value: ast.expr, nodes: NodesAt) -> ast.If:
        """Return a statement that binds carried names to new values, if a branch or loop is traced."""
        return self._if_traced(flow, nodes.assignments(names, value), nodes)

    def _end(self, flow: str, at: ast.AST) -> ast.If:
        """Return a statement that ends a branch or the body of a loop, if it is traced."""
        nodes = NodesAt(at)
        return self._if_traced(flow, nodes.expression(nodes.call_with_locals(flow, "end")), nodes)

    # statements -----------------------------------------------------------------------------------------

    def visit_FunctionDef(self, node: ast.FunctionDef) -> object:
        return node  # a function of its own: a macro, or rewritten by its own decorator

    def visit_If(self, node: ast.If) -> object:
        names, name, nodes = self.carried[node], self._name("if"), NodesAt(node)
        carried = _constants(names, nodes)
        begin = nodes.expression(nodes.call_with_locals(name, "begin"))
        made: list[ast.stmt] = [
            nodes.assignment(name, nodes.call(RUNTIME_NAME, "if_", self.visit(node.test), *carried)),
            self._if_traced(name, begin, nodes),
        ]
        for side, body in (("then", node.body), ("otherwise", node.orelse)):
            statements: list[ast.stmt] = []
            if side == "otherwise":
                back = (*names.bound, *names.restored)
                statements.append(self._bind(back, name, nodes.call(name, "restore"), nodes))
            statements += [*self._statements(body), self._end(name, body[-1] if body else node)]
            made.append(nodes.branch(nodes.attribute(name, side), statements))
        self._leave()
        return [*made, self._bind(names.bound, name, nodes.call(name, "merge"), nodes)]

    def visit_While(self, node: ast.While) -> object:
        names, name, nodes = self.carried[node], self._name("while"), NodesAt(node)
        always = isinstance(node.test, ast.Constant) and bool(node.test.value)
        test: ast.expr = nodes.constant(None) if always else _function(self.visit(node.test))
        begun = nodes.assignment(name, nodes.call(RUNTIME_NAME, "while_", test, *_constants(names, nodes)))
        loop = ast.copy_location(ast.While(nodes.call(name, "test"), [], []), node)
        return self._loop(node, name, names.bound, begun, loop)

    def visit_For(self, node: ast.For) -> object:
        names, name, nodes = self.carried[node], self._name("for"), NodesAt(node)
        target = nodes.constant(node.target.id if isinstance(node.target, ast.Name) else "")
        items = self.visit(node.iter), target
        begun = nodes.assignment(name, nodes.call(RUNTIME_NAME, "for_", *items, *_constants(names, nodes)))
        loop = ast.copy_location(ast.For(node.target, nodes.call(name, "items"), [], []), node)
        return self._loop(node, name, names.bound, begun, loop)

    def _loop(
        self, node: ast.While | ast.For, name: str, bound: tuple[str, ...], begun: ast.stmt, loop: Any
    ) -> list[ast.stmt]:
        """Return a loop rewritten: what comes before it, its body, and what it binds after it."""
        if node.orelse:
            raise Unsupported(
                "`else` after a loop does not work in a kernel: test a flag after the loop", node
            )
        nodes = NodesAt(node)
        self.loops.append(name)
        loop.body = [*self._statements(node.body), self._end(name, node.body[-1])]
        self.loops.pop()
        self._leave()
        return [
            begun,
            self._bind(bound, name, nodes.call_with_locals(name, "begin"), nodes),
            loop,
            self._bind(bound, name, nodes.call(name, "after"), nodes),
        ]

    def visit_Break(self, node: ast.Break) -> object:
        return self._jump(node, "break")

    def visit_Continue(self, node: ast.Continue) -> object:
        return self._jump(node, "continue")

    def _jump(self, node: ast.Break | ast.Continue, word: str) -> list[ast.stmt]:
        """Return `break` or `continue` under the condition that Python's own loop is to do it."""
        nodes = NodesAt(node)
        return [nodes.branch(nodes.call_with_locals(self.loops[-1], "leave", nodes.constant(word)), [node])]

    def visit_Return(self, node: ast.Return) -> object:
        if not self.is_kernel:
            if node.value is not None:
                node.value = self.visit(node.value)
            return node
        if node.value is not None and not (isinstance(node.value, ast.Constant) and node.value.value is None):
            raise Unsupported("a kernel returns nothing: store its results through a pointer parameter", node)
        nodes = NodesAt(node)
        return [nodes.branch(nodes.call(RUNTIME_NAME, "exit"), [node])]

    def visit_Assert(self, node: ast.Assert) -> object:
        nodes = NodesAt(node)
        test = _function(self.visit(node.test))
        text = nodes.constant(ast.unparse(node.test))
        call = nodes.call(RUNTIME_NAME, "assert_", test, node.msg or nodes.constant(None), text)
        return nodes.expression(call)

    def visit_Assign(self, node: ast.Assign) -> object:
        node.value = self.visit(node.value)
        node.targets = [self.visit(target) for target in node.targets]
        target = node.targets[0]
        names = _names(target)
        if names is not None:
            nodes = NodesAt(node)
            node.value = nodes.call(RUNTIME_NAME, "named", nodes.constant(names), node.value)
        return node

    def visit_AugAssign(self, node: ast.AugAssign) -> object:
        node.value = self.visit(node.value)
        node.target = self.visit(node.target)
        if isinstance(node.target, ast.Name):
            nodes, name = NodesAt(node), node.target.id
            named = nodes.call(RUNTIME_NAME, "named", nodes.constant(name), nodes.name(name))
            return [node, nodes.assignment(name, named)]
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> object:
        node.value = node.value and self.visit(node.value)
        return node

    # expressions ----------------------------------------------------------------------------------------

    def visit_Call(self, node: ast.Call) -> object:
        """`print(…)` goes to the runtime, which prints traced values when the kernel runs."""
        self.generic_visit(node)
        if isinstance(node.func, ast.Name) and node.func.id == "print":
            call = NodesAt(node).call(RUNTIME_NAME, "print_", node.func, *node.args)
            call.keywords = node.keywords
            return call
        return node

    def visit_BoolOp(self, node: ast.BoolOp) -> object:
        name = "and_" if isinstance(node.op, ast.And) else "or_"
        first, *rest = [self.visit(value) for value in node.values]
        return NodesAt(node).call(RUNTIME_NAME, name, first, *map(_function, rest))

    def visit_Expr(self, node: ast.Expr) -> object:
        if isinstance(
            node.value, ast.Name | ast.Attribute
        ):  # perhaps a function whose parentheses are missing
            nodes, text = NodesAt(node), ast.unparse(node.value)
            node.value = nodes.call(
                RUNTIME_NAME, "require_called", self.visit(node.value), nodes.constant(text)
            )
            return node
        return self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> object:
        operand = self.visit(node.operand)
        if isinstance(node.op, ast.Not):
            return NodesAt(node).call(RUNTIME_NAME, "not_", operand)
        node.operand = operand
        return node

    def visit_IfExp(self, node: ast.IfExp) -> object:
        test, body, orelse = (self.visit(part) for part in (node.test, node.body, node.orelse))
        return NodesAt(node).call(RUNTIME_NAME, "choose", test, _function(body), _function(orelse))

    def visit_Compare(self, node: ast.Compare) -> object:
        self.generic_visit(node)
        nodes, words = NodesAt(node), tuple(type(op).__name__ for op in node.ops)
        if len(node.ops) == 1:
            right = node.comparators[0]
            if not isinstance(node.ops[0], ast.Is | ast.IsNot):
                return node
            if not (isinstance(right, ast.Constant) and right.value is None):
                return nodes.call(RUNTIME_NAME, "identity", nodes.constant(words[0]), node.left, right)
            if self.is_kernel and isinstance(node.left, ast.Name) and node.left.id in self.parameters:
                node.left = nodes.call(RUNTIME_NAME, "not_none", node.left, nodes.constant(node.left.id))
            return node
        others = map(_function, node.comparators)
        return nodes.call(RUNTIME_NAME, "chain", nodes.constant(words), node.left, *others)


#: The methods of `_Rewriter` for classes of nodes.
_METHODS: dict[type, Callable[[_Rewriter, Any], Any]] = {
    getattr(ast, name.removeprefix("visit_")): method
    for name, method in vars(_Rewriter).items()
    if name.startswith("visit_")
}


def _constants(names: Carried, nodes: NodesAt) -> list[ast.expr]:
    """Return the names that a branch or loop carries, as arguments of a call."""
    return [nodes.constant(names_of) for names_of in (names.bound, names.read, names.restored, names.live)]


def _function(value: ast.expr) -> ast.Lambda:
    """Return a function of no arguments that evaluates an expression when it is called."""
    for node in walk(value):
        if isinstance(node, ast.NamedExpr):
            raise Unsupported(
                "`:=` does not work in the condition of a `while`, behind `and` or `or`, or in "
                "`a if c else b`: assign the value in a statement of its own",
                node,
            )
    return NodesAt(value).function(value)


def _names(target: ast.expr) -> object:
    """Return what an assignment binds: a name, a tuple of names and tuples; None if there is anything else.

    >>> _names(ast.parse("a, (b, c) = f()").body[0].targets[0])
    ('a', ('b', 'c'))
    """
    if isinstance(target, ast.Name):
        return target.id
    if not isinstance(target, ast.Tuple):
        return None
    names = tuple(_names(element) for element in target.elts)
    return None if None in names else names
