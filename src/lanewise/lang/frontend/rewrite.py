"""The rewrite of a kernel's syntax tree: control flow becomes calls that decide, while tracing, what it is.

`if`, `while`, `for`, `and`, `or`, `not`, `a if c else b`, chains of comparisons and `assert` ask the runtime
(`control_flow.py`) whether their value is traced; if not, plain Python happens.
"""

from __future__ import annotations

import ast
from typing import Any

from lanewise.lang.frontend.liveness import Liveness
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


class Unsupported(Exception):
    """The error for a construct that kernels do not have, with its line."""

    def __init__(self, message: str, node: Any) -> None:
        self.line = node.lineno
        super().__init__(message)


def rewrite(function: ast.FunctionDef, is_kernel: bool) -> ast.FunctionDef:
    """Return the function with its control flow turned into calls of the runtime.

    New nodes may lack their lines: `ast.fix_missing_locations` comes before it is compiled.
    """
    for node in ast.walk(function):
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


def _has_return(node: ast.AST) -> bool:
    """Return whether a tree returns from its function; functions inside it do not count."""
    if isinstance(node, ast.FunctionDef | ast.Lambda | ast.ClassDef):
        return False
    return isinstance(node, ast.Return) or any(map(_has_return, ast.iter_child_nodes(node)))


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
        node.orelse = _returns_last(orelse, function) or [ast.Pass(lineno=node.lineno, col_offset=0)]
        return [*statements[:number], node]
    return statements


class _Rewriter(ast.NodeTransformer):
    """Rewrites one function, with the names that its branches and loops carry at hand."""

    def __init__(self, function: ast.FunctionDef, is_kernel: bool) -> None:
        self.node, self.is_kernel = function, is_kernel
        self.device_result = not is_kernel and any(
            isinstance(each, ast.If) and _has_return(each) for each in function.body
        )
        if self.device_result:
            function.body = self._results(function.body)
        self.carried = Liveness(function).carried
        self.count = 0
        self.loops: list[str] = []

    def _results(self, statements: list[ast.stmt]) -> list[ast.stmt]:
        """Return statements with `__result = x` for `return x`, and one return at the end."""

        class Returns(ast.NodeTransformer):
            def visit_Return(self, node: ast.Return) -> Any:
                value = node.value or ast.Constant(None)
                return ast.copy_location(ast.Assign([ast.Name(_RESULT, ast.Store())], value), node)

            def visit_FunctionDef(self, node: ast.FunctionDef) -> Any:
                return node

            def visit_Lambda(self, node: ast.Lambda) -> Any:
                return node

        made = [Returns().visit(each) for each in statements]
        first = ast.copy_location(ast.Assign([ast.Name(_RESULT, ast.Store())], ast.Constant(None)), made[0])
        last = ast.copy_location(ast.Return(ast.Name(_RESULT, ast.Load())), made[-1])
        return [first, *made, last]

    def function(self) -> ast.FunctionDef:
        """Return the rewritten function, without the original's decorators, annotations and defaults."""
        node = self.node
        body = node.body
        if body and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
            body = body[1:]
        node.body = self._statements(body) or [ast.Pass()]
        node.decorator_list, node.returns = [], None
        arguments = node.args
        everyone = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
        for each in (*everyone, arguments.vararg, arguments.kwarg):
            if each is not None:
                each.annotation = None
        arguments.defaults = [ast.Constant(None) for _ in arguments.defaults]
        arguments.kw_defaults = [each and ast.Constant(None) for each in arguments.kw_defaults]
        return node

    # code to insert -------------------------------------------------------------------------------------

    def _parse(self, source: str, at: ast.AST) -> list[ast.stmt]:
        """Return statements written as text, at the line of another."""
        made = ast.parse(source).body
        place: Any = at
        where = place.lineno, place.col_offset, place.end_lineno, place.end_col_offset
        for statement in made:
            for each in ast.walk(statement):
                if each._attributes:
                    node: Any = each
                    node.lineno, node.col_offset, node.end_lineno, node.end_col_offset = where
        return made

    def _call(self, name: str, *arguments: ast.expr, at: ast.AST) -> ast.Call:
        """Return a call of a method of the runtime."""
        function = ast.Attribute(ast.Name(RUNTIME_NAME, ast.Load()), name, ast.Load())
        call = ast.Call(function, list(arguments), [])
        for each in (call, function, function.value):
            ast.copy_location(each, at)
        return call

    def _lambda(self, value: ast.expr) -> ast.expr:
        """Return a function of no arguments that evaluates an expression when it is called."""
        empty = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
        return ast.copy_location(ast.Lambda(empty, value), value)

    def _name(self, stem: str) -> str:
        """Return a fresh name for a variable of the rewritten function."""
        self.count += 1
        return f"__{stem}{self.count}"

    def _statements(self, statements: list[ast.stmt]) -> list[ast.stmt]:
        """Return statements rewritten, each after a call that notes its line."""
        made: list[ast.stmt] = []
        for statement in statements:
            if not isinstance(statement, ast.FunctionDef | ast.Pass | ast.Import | ast.ImportFrom):
                line, column = ast.Constant(statement.lineno), ast.Constant(statement.col_offset + 1)
                noted = ast.Expr(self._call("at", line, column, at=statement))
                made.append(ast.copy_location(noted, statement))
            found = self.visit(statement)
            made += found if isinstance(found, list) else [found]
            if isinstance(statement, ast.Return | ast.Break | ast.Continue):
                break  # what follows is never reached
        return made

    def _bind(self, names: tuple[str, ...], value: str, condition: str, at: ast.AST) -> list[ast.stmt]:
        """Return statements that bind carried names to new values, if a branch or loop is traced."""
        target = f"({', '.join(names)},) = " if names else ""
        return self._parse(f"if {condition}.traced:\n    {target}{value}", at)

    # statements -----------------------------------------------------------------------------------------

    def visit_FunctionDef(self, node: ast.FunctionDef) -> Any:
        return node  # a function of its own: a macro, or rewritten by its own decorator

    def visit_If(self, node: ast.If) -> Any:
        names = self.carried[node]
        name = self._name("if")
        carried = f"{names.bound!r}, {names.read!r}, {names.restored!r}"
        test = self.visit(node.test)
        made: list[ast.stmt] = [
            *self._parse(f"{name} = {RUNTIME_NAME}.if_(None, {carried})", node),
        ]
        assert isinstance(made[0], ast.Assign) and isinstance(made[0].value, ast.Call)
        made[0].value.args[0] = test
        made += self._parse(f"if {name}.traced: {name}.begin(locals())", node)
        end = f"if {name}.traced: {name}.end(locals())"
        for side, body in (("then", node.body), ("otherwise", node.orelse)):
            taken = self._parse(f"if {name}.{side}: pass", node)[0]
            assert isinstance(taken, ast.If)
            back = (*names.bound, *names.restored)
            start = self._bind(back, f"{name}.restore()", name, node) if side == "otherwise" else []
            taken.body = [*start, *self._statements(body), *self._parse(end, body[-1] if body else node)]
            made.append(taken)
        return [*made, *self._bind(names.bound, f"{name}.merge()", name, node)]

    def visit_While(self, node: ast.While) -> Any:
        names, name = self.carried[node], self._name("while")
        made = self._parse(f"{name} = {RUNTIME_NAME}.while_(None, {names.bound!r}, {names.read!r})", node)
        assert isinstance(made[0], ast.Assign) and isinstance(made[0].value, ast.Call)
        always = isinstance(node.test, ast.Constant) and bool(node.test.value)
        test = ast.copy_location(ast.Constant(None), node) if always else self._lambda(self.visit(node.test))
        made[0].value.args[0] = test
        made += self._bind(names.bound, f"{name}.begin(locals())", name, node)
        loop = self._parse(f"while {name}.test(): pass", node)[0]
        assert isinstance(loop, ast.While)
        return self._loop(node, name, names.bound, made, loop)

    def visit_For(self, node: ast.For) -> Any:
        names, name = self.carried[node], self._name("for")
        made = self._parse(f"{name} = {RUNTIME_NAME}.for_(None, {names.bound!r}, {names.read!r}, '')", node)
        assert isinstance(made[0], ast.Assign) and isinstance(made[0].value, ast.Call)
        made[0].value.args[0] = self.visit(node.iter)
        if isinstance(node.target, ast.Name):
            made[0].value.args[3] = ast.copy_location(ast.Constant(node.target.id), node)
        made += self._bind(names.bound, f"{name}.begin(locals())", name, node)
        loop = self._parse(f"for _ in {name}.items(): pass", node)[0]
        assert isinstance(loop, ast.For)
        loop.target = node.target
        return self._loop(node, name, names.bound, made, loop)

    def _loop(
        self, node: ast.While | ast.For, name: str, bound: tuple[str, ...], made: list[ast.stmt], loop: Any
    ) -> list[ast.stmt]:
        """Return a loop rewritten: what comes before it, its body, and what it binds after it."""
        if node.orelse:
            raise Unsupported(
                "`else` after a loop does not work in a kernel: test a flag after the loop", node
            )
        self.loops.append(name)
        body = self._statements(node.body)
        self.loops.pop()
        loop.body = [*body, *self._parse(f"if {name}.traced: {name}.end(locals())", node.body[-1])]
        return [*made, loop, *self._bind(bound, f"{name}.after()", name, node)]

    def visit_Break(self, node: ast.Break) -> Any:
        return self._jump(node, "break")

    def visit_Continue(self, node: ast.Continue) -> Any:
        return self._jump(node, "continue")

    def _jump(self, node: ast.Break | ast.Continue, word: str) -> list[ast.stmt]:
        """Return `break` or `continue` under the condition that Python's own loop is to do it."""
        made = self._parse(f"if {self.loops[-1]}.leave(locals(), {word!r}): pass", node)[0]
        assert isinstance(made, ast.If)
        made.body = [node]
        return [made]

    def visit_Return(self, node: ast.Return) -> Any:
        if not self.is_kernel:
            if node.value is not None:
                node.value = self.visit(node.value)
            return node
        if node.value is not None and not (isinstance(node.value, ast.Constant) and node.value.value is None):
            raise Unsupported("a kernel returns nothing: store its results through a pointer parameter", node)
        made = self._parse(f"if {RUNTIME_NAME}.exit(): pass", node)[0]
        assert isinstance(made, ast.If)
        made.body = [node]
        return [made]

    def visit_Assert(self, node: ast.Assert) -> Any:
        test = self._lambda(self.visit(node.test))
        message = node.msg or ast.copy_location(ast.Constant(None), node)
        text = ast.copy_location(ast.Constant(ast.unparse(node.test)), node)
        return ast.copy_location(ast.Expr(self._call("assert_", test, message, text, at=node)), node)

    def visit_Assign(self, node: ast.Assign) -> Any:
        node.value = self.visit(node.value)
        node.targets = [self.visit(each) for each in node.targets]
        target = node.targets[0]
        names = _names(target)
        if names is not None:
            given = ast.copy_location(ast.parse(repr(names), mode="eval").body, node)
            node.value = self._call("named", given, node.value, at=node)
        return node

    def visit_AugAssign(self, node: ast.AugAssign) -> Any:
        node.value = self.visit(node.value)
        node.target = self.visit(node.target)
        if isinstance(node.target, ast.Name):
            named = f"{node.target.id} = {RUNTIME_NAME}.named({node.target.id!r}, {node.target.id})"
            return [node, *self._parse(named, node)]
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> Any:
        node.value = node.value and self.visit(node.value)
        return node

    # expressions ----------------------------------------------------------------------------------------

    def visit_Call(self, node: ast.Call) -> Any:
        """`print(…)` goes to the runtime, which prints traced values when the kernel runs."""
        self.generic_visit(node)
        if isinstance(node.func, ast.Name) and node.func.id == "print":
            call = self._call("print_", node.func, *node.args, at=node)
            call.keywords = node.keywords
            return call
        return node

    def visit_BoolOp(self, node: ast.BoolOp) -> Any:
        name = "and_" if isinstance(node.op, ast.And) else "or_"
        first, *rest = [self.visit(each) for each in node.values]
        return self._call(name, first, *(self._lambda(each) for each in rest), at=node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> Any:
        operand = self.visit(node.operand)
        if isinstance(node.op, ast.Not):
            return self._call("not_", operand, at=node)
        node.operand = operand
        return node

    def visit_IfExp(self, node: ast.IfExp) -> Any:
        test, body, orelse = (self.visit(each) for each in (node.test, node.body, node.orelse))
        return self._call("choose", test, self._lambda(body), self._lambda(orelse), at=node)

    def visit_Compare(self, node: ast.Compare) -> Any:
        self.generic_visit(node)
        if len(node.ops) == 1:
            return node
        words = [type(each).__name__ for each in node.ops]
        given = ast.copy_location(ast.parse(repr(words), mode="eval").body, node)
        return self._call("chain", given, node.left, *map(self._lambda, node.comparators), at=node)


def _names(target: ast.expr) -> Any:
    """Return what an assignment binds: a name, a tuple of names and tuples; None if there is anything else.

    >>> _names(ast.parse("a, (b, c) = f()").body[0].targets[0])
    ('a', ('b', 'c'))
    """
    if isinstance(target, ast.Name):
        return target.id
    if not isinstance(target, ast.Tuple):
        return None
    found = tuple(_names(each) for each in target.elts)
    return None if None in found else found
