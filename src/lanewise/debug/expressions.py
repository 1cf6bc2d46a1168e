"""Expressions over what a moment holds: registers and variables by lane, arrays, special registers.

An expression is parsed as Python and evaluated by this file alone: numbers, names, elements, operators,
comparisons and a few functions. Nothing else is looked up and nothing is called.
"""

import ast
import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
import numpy.typing as npt

from lanewise.debug.moments import COORDINATES, Moment
from lanewise.errors import LanewiseError
from lanewise.machine.abi import LANES
from lanewise.numpy_types import AnyArray
from lanewise.traces.arrays import source_name
from lanewise.traces.names import NamedValue, Variable, typed

#: The most characters of an expression.
LONGEST = 1000
_REGISTER = "_register_"
_OWN = "_own_"
#: A register's name after %, where no operand precedes it: there % is the remainder.
_PERCENT = re.compile(r"(?<![\w\])])(\s*)%([A-Za-z_$][\w$]*)")


class Kind(Enum):
    """What a value has an element for."""

    SCALAR = "one number"
    LANES = "a number for each lane"
    VECTOR = "several numbers for each lane"
    ARRAY = "an array"
    STRUCTURE = "a list, tuple or dict"


@dataclass(frozen=True)
class Value:
    """The value of an expression."""

    kind: Kind
    data: AnyArray
    #: Of a part of an array: the rows, columns and so on that it has of the whole.
    axes: tuple[range, ...] = ()
    #: Of registers: the variable that they are, such as one fragment of a list.
    variable: Variable | None = None
    #: Of a list, tuple or dict: what it holds, by index or key.
    items: dict[object, NamedValue] | None = None


_OPERATORS: dict[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: np.true_divide,
    ast.FloorDiv: np.floor_divide,
    ast.Mod: np.mod,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.BitXor: operator.xor,
    ast.LShift: np.left_shift,
    ast.RShift: np.right_shift,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_UNARY: dict[type[ast.AST], Callable[[Any], Any]] = {
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Invert: np.invert,
    ast.Not: np.logical_not,
}
_ELEMENTWISE: dict[str, Callable[[Any], Any]] = {
    "abs": np.abs,
    "isnan": np.isnan,
    "isinf": np.isinf,
    "sqrt": np.sqrt,
}
_REDUCTIONS: dict[str, Callable[[Any], Any]] = {
    "any": np.any,
    "all": np.all,
    "sum": np.sum,
    "min": np.min,
    "max": np.max,
}
FUNCTIONS = (*_ELEMENTWISE, *_REDUCTIONS, "len")
#: What a fragment is asked for its registers by.
REGISTERS = "registers"
#: Names that the debugger itself gives a value, unless the kernel has a variable of that name.
OWN_NAMES = ("lane", "warp", "step")


class Expression:
    """An expression that was understood, to be evaluated at many moments.

    >>> Expression("acc[2] > 1 and lane == 7").text
    'acc[2] > 1 and lane == 7'
    >>> Expression("__import__('os')")
    Traceback (most recent call last):
        ...
    lanewise.errors.LanewiseError: __import__ is no function here; functions are abs, isnan, isinf, sqrt, ...
    """

    def __init__(self, text: str) -> None:
        self.text = text.strip()
        if not self.text:
            raise LanewiseError("an expression is missing, such as acc[2] > 1 and lane == 7")
        if len(self.text) > LONGEST:
            raise LanewiseError(f"an expression has at most {LONGEST} characters, not {len(self.text)}")
        source = _PERCENT.sub(rf"\1{_REGISTER}\2", self.text)
        source = re.sub(r"\$(?=[A-Za-z_])", _OWN, source).strip()
        try:
            self._tree = ast.parse(source, mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            why = error.msg if isinstance(error, SyntaxError) else "it cannot be read"
            raise LanewiseError(f"{self.text}: this is no expression: {why}") from None
        self._require(self._tree)

    def _require(self, node: ast.AST) -> None:
        """Raise an error for anything that expressions do not have."""
        allowed = (
            ast.BoolOp, ast.BinOp, ast.UnaryOp, ast.Compare, ast.IfExp, ast.Name, ast.Constant, ast.Subscript,
            ast.Attribute, ast.Call, ast.Tuple, ast.Slice, ast.Load, ast.And, ast.Or,
            *_OPERATORS, *_UNARY,
        )  # fmt: skip
        for part in ast.walk(node):
            if isinstance(part, ast.Call):
                name = part.func.id if isinstance(part.func, ast.Name) else _plain(part.func)
                if name not in FUNCTIONS or len(part.args) != 1 or part.keywords:
                    known = f"functions are {', '.join(FUNCTIONS)}, of one argument"
                    raise LanewiseError(f"{name} is no function here; {known}")
            if isinstance(part, ast.Constant) and not isinstance(part.value, bool | int | float | str):
                raise LanewiseError(f"{part.value!r} is no number; expressions have numbers only")
            named = isinstance(part, ast.Attribute) and isinstance(part.value, ast.Name)
            if isinstance(part, ast.Attribute) and not named and part.attr != REGISTERS:
                raise LanewiseError(
                    f"{self.text}: only threadIdx and its like have .x, .y and .z, and fragments .registers"
                )
            if not isinstance(part, allowed):
                raise LanewiseError(
                    f"{self.text}: {type(part).__name__} is not part of expressions, which have numbers, "
                    "names, elements such as As[1, 2], operators, comparisons, and, or, not, if"
                )

    def evaluate(self, moment: Moment) -> Value:
        """Return the value at a moment; an error says what is wrong with the expression there."""
        try:
            with np.errstate(all="ignore"):
                return _Evaluation(moment).value(self._tree)
        except LanewiseError:
            raise
        except (TypeError, ValueError, OverflowError, IndexError, RecursionError) as error:
            raise LanewiseError(f"{self.text} has no value here: {error}") from None

    def holds(self, moment: Moment) -> npt.NDArray[np.bool_]:
        """Return the lanes at the next instruction for which the expression is not 0."""
        value = self.evaluate(moment)
        if value.kind in (Kind.ARRAY, Kind.VECTOR, Kind.STRUCTURE):
            raise LanewiseError(
                f"{self.text} is {value.kind.value}, no condition: any(…) or all(…) makes one"
            )
        return np.asarray(moment.active & np.broadcast_to(value.data.astype(np.bool_), LANES))

    def __str__(self) -> str:
        return self.text


class _Evaluation:
    """The evaluation of an expression at one moment."""

    def __init__(self, moment: Moment) -> None:
        self.moment = moment

    def value(self, node: ast.AST) -> Value:
        match node:
            case ast.Constant(value=str() as text):
                raise LanewiseError(f"{text!r} is no number; only the key of a dict is a text")
            case ast.Constant(value=value):
                return Value(Kind.SCALAR, _number(value))
            case ast.Attribute(value=of, attr=attribute) if attribute == REGISTERS:
                return self.registers_of(of)
            case ast.Name(id=name):
                return self.name(name)
            case ast.Attribute(value=ast.Name(id=name), attr=axis):
                return _of_lanes(self.moment.special(name.removeprefix(_REGISTER), axis))
            case ast.Subscript(value=of, slice=index):
                return self.element(of, index)
            case ast.UnaryOp(op=op, operand=operand):
                inner = self.value(operand)
                return Value(inner.kind, np.asarray(_UNARY[type(op)](widened(inner.data))))
            case ast.BinOp(left=left, op=op, right=right):
                return _combined(_OPERATORS[type(op)], self.value(left), self.value(right), op)
            case ast.BoolOp(op=op, values=values):
                both = np.logical_and if isinstance(op, ast.And) else np.logical_or
                result = self.value(values[0])
                for further in values[1:]:
                    result = _combined(both, result, self.value(further))
                return result
            case ast.Compare(left=left, ops=ops, comparators=comparators):
                operands = [self.value(left), *(self.value(comparator) for comparator in comparators)]
                result = Value(Kind.SCALAR, np.asarray(True))
                for comparison, one, other in zip(ops, operands, operands[1:], strict=False):
                    if type(comparison) not in _OPERATORS:
                        raise LanewiseError("comparisons are ==, !=, <, <=, > and >=")
                    held = _combined(_OPERATORS[type(comparison)], one, other)
                    result = _combined(np.logical_and, result, held)
                return result
            case ast.IfExp(test=test, body=body, orelse=orelse):
                chosen, one, other = self.value(test), self.value(body), self.value(orelse)
                kind = _common(chosen, one, other)
                data = np.where(*(_shaped(operand, kind) for operand in (chosen, one, other)))
                return Value(kind, data)
            case ast.Call(func=ast.Name(id=name), args=[argument]):
                return self.call(name, self.value(argument))
        raise LanewiseError(f"{ast.unparse(node)} is not part of expressions")

    def name(self, name: str) -> Value:
        """Return what a name stands for: a variable, a register, an array, or a name of the debugger."""
        moment = self.moment
        if name.startswith(_OWN):
            return self.own(name.removeprefix(_OWN))
        if name.startswith(_REGISTER):
            return self.register("%" + name.removeprefix(_REGISTER))
        if name in moment.shared_names:
            return Value(Kind.ARRAY, moment.shared(name))
        if name in moment.argument_names:
            return Value(Kind.ARRAY, moment.argument(name))
        names = moment.recording.names
        if name in moment.matrix_names:
            return Value(Kind.ARRAY, moment.tensor(name))
        if name in names.values and name not in names.variables:
            return self.held(name, names.values[name])
        try:
            return self.register(name)
        except LanewiseError:
            if name in OWN_NAMES:
                return self.own(name)
            if name in moment.tensor_names:
                return Value(Kind.ARRAY, moment.tensor(name))
            if name in COORDINATES:
                raise LanewiseError(f"{name} has three coordinates: {name}.x, {name}.y, {name}.z") from None
            if name in (source_name(variable) for variable in moment.recording.shared_arrays.variables):
                raise LanewiseError(
                    f"the PTX does not say what {name} holds: say it, as in type {name} f16[64,64]"
                ) from None
            raise

    def own(self, name: str) -> Value:
        """Return what the debugger itself calls so."""
        if name == "lane":
            return Value(Kind.LANES, np.arange(LANES))
        if name == "warp":
            return Value(Kind.SCALAR, np.asarray(self.moment.warp))
        if name == "step":
            return Value(Kind.SCALAR, np.asarray(self.moment.position))
        raise LanewiseError(f"there is no ${name}; there are {', '.join(f'${name}' for name in OWN_NAMES)}")

    def register(self, name: str) -> Value:
        """Return a register or variable of the lanes."""
        return self.variable(self.moment.recording.names.find(name))

    def variable(self, variable: Variable) -> Value:
        """Return the registers of a variable as numbers."""
        data = self.moment.values(variable)
        return Value(Kind.VECTOR if data.ndim > 1 else Kind.LANES, data, variable=variable)

    def held(self, name: str, value: NamedValue) -> Value:
        """Return what a Python variable holds, or an element of it."""
        if isinstance(value, Variable):
            return self.variable(value)
        if isinstance(value, int | float):
            return Value(Kind.SCALAR, _number(value))
        if value is None:
            raise LanewiseError(
                f"no register holds {name}: it is a constant, or computed only as a part of others"
            )
        return Value(Kind.STRUCTURE, np.zeros(0), items=value)

    def registers_of(self, node: ast.expr) -> Value:
        """Return the registers of a fragment as they are: words of 32 bits, or floats."""
        variable = self.value(node).variable
        if variable is None:
            raise LanewiseError(f"{_plain(node)} is no fragment: it has no registers")
        columns = [
            typed(self.moment.registers.bits(element), element[0].type) for element in variable.elements
        ]
        return Value(Kind.VECTOR, np.stack(columns, axis=1))

    def item(self, whole: Value, of: ast.expr, index: ast.expr) -> Value:
        """Return an element of a list, tuple or dict."""
        key: object = index.value if isinstance(index, ast.Constant) else None
        if not isinstance(key, str):
            item = self.value(index)
            if item.kind is not Kind.SCALAR:
                raise LanewiseError(
                    f"an index of {_plain(of)} is one number for all lanes: it is {whole.kind.value}"
                )
            key = item.data.item()
        items = whole.items or {}
        key = key + len(items) if isinstance(key, int) and key < 0 else key
        if key in items:
            return self.held(f"{_plain(of)}[{key!r}]", items[key])
        raise LanewiseError(f"{_plain(of)} has the elements {', '.join(map(repr, items))}, not {key!r}")

    def element(self, of: ast.expr, index: ast.expr) -> Value:
        """Return an element of an array, which may be another one for each lane, or a part of it."""
        whole = self.value(of)
        if whole.kind is Kind.STRUCTURE:
            return self.item(whole, of, index)
        if whole.kind not in (Kind.ARRAY, Kind.VECTOR):
            raise LanewiseError(f"{_plain(of)} is {whole.kind.value}: it has no elements")
        parts = index.elts if isinstance(index, ast.Tuple) else [index]
        shape = whole.data.shape if whole.kind is Kind.ARRAY else whole.data.shape[1:]
        if len(parts) != len(shape):
            raise LanewiseError(
                f"{_plain(of)} takes {len(shape)} indices, not {len(parts)}: its shape is {shape}"
            )
        chosen = [self.index(part, size, of) for part, size in zip(parts, shape, strict=True)]
        if whole.kind is Kind.VECTOR:
            column = chosen[0]
            if isinstance(column, slice):
                return Value(Kind.VECTOR, whole.data[:, column])
            if isinstance(column, np.ndarray):
                return Value(Kind.LANES, whole.data[np.arange(LANES), column])
            return Value(Kind.LANES, whole.data[:, column])
        data = np.asarray(whole.data[tuple(chosen)])
        if any(isinstance(index, np.ndarray) for index in chosen):
            if any(isinstance(index, slice) for index in chosen):
                raise LanewiseError("an index for each lane and a range do not go together")
            return Value(Kind.LANES, data)
        axes = tuple(
            range(*index.indices(size))
            for index, size in zip(chosen, shape, strict=True)
            if isinstance(index, slice)
        )
        return Value(Kind.ARRAY if axes else Kind.SCALAR, data, axes)

    def index(self, node: ast.expr, size: int, of: ast.expr) -> Any:
        """Return an index: a range, a number, or a number for each lane.

        One number may count from the end, as -1 does. Numbers of lanes may not: there it would be a mistake.
        """
        if isinstance(node, ast.Slice):
            ends = [
                None if bound is None else int(self.value(bound).data)
                for bound in (node.lower, node.upper, node.step)
            ]
            return slice(*ends)
        value = self.value(node)
        if value.kind not in (Kind.SCALAR, Kind.LANES) or value.data.dtype.kind not in "iub":
            raise LanewiseError(f"an index of {_plain(of)} is an integer, not {_plain(node)}")
        values = value.data.astype(np.int64)
        if value.kind is Kind.SCALAR and -size <= values < 0:
            return int(values) + size
        seen = values[self.moment.active] if value.kind is Kind.LANES else values
        if ((seen < 0) | (seen >= size)).any():
            wrong = int(np.atleast_1d(seen)[np.atleast_1d((seen < 0) | (seen >= size))][0])
            raise LanewiseError(f"{_plain(of)} has elements 0 to {size - 1} there, not {wrong}")
        return np.clip(values, 0, size - 1) if value.kind is Kind.LANES else int(values)

    def call(self, name: str, argument: Value) -> Value:
        """Return the result of one of the functions; reductions of lanes take those that are active."""
        if name == "len":
            return Value(Kind.SCALAR, np.asarray(_length(argument)))
        if argument.kind is Kind.STRUCTURE:
            raise LanewiseError(f"{name} takes numbers, not {argument.kind.value}: name an element of it")
        data = widened(argument.data)
        if name in _ELEMENTWISE:
            return Value(argument.kind, np.asarray(_ELEMENTWISE[name](data)))
        if argument.kind in (Kind.LANES, Kind.VECTOR):
            data = data[self.moment.active]
        return Value(Kind.SCALAR, np.asarray(_REDUCTIONS[name](data)))


def _plain(node: ast.AST) -> str:
    return ast.unparse(node).replace(_REGISTER, "%").replace(_OWN, "$")


def _length(value: Value) -> int:
    """Return how many elements a value has: of a fragment, those of one lane."""
    if value.items is not None:
        return len(value.items)
    if value.kind in (Kind.ARRAY, Kind.VECTOR):
        return int(value.data.shape[0 if value.kind is Kind.ARRAY else 1])
    raise LanewiseError(f"len takes a list, an array or a fragment, not {value.kind.value}")


def _number(value: object) -> AnyArray:
    """Return a number of the expression; an error for an integer that no register holds."""
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 64:
        raise LanewiseError(f"{value} has more than 64 bits")
    return np.asarray(value)


def _of_lanes(data: object) -> Value:
    array = np.asarray(data)
    return Value(Kind.LANES if array.ndim else Kind.SCALAR, array)


def widened(data: AnyArray) -> AnyArray:
    """Return numbers in a type whose arithmetic does not wrap around as registers do.

    >>> widened(np.uint32([0])).item() - 1
    -1
    """
    if data.dtype.kind in "iu":
        fits = data.dtype != np.uint64 or not (data >> np.uint64(63)).any()
        return data.astype(np.int64) if fits else data
    if data.dtype.kind == "b" or data.dtype in (np.float64, np.float32):
        return data
    return data.astype(np.float32)  # float16, and formats that NumPy does not know itself


def _common(*values: Value) -> Kind:
    """Return the kind of a value that some are combined to."""
    kinds = {value.kind for value in values}
    if Kind.STRUCTURE in kinds:
        raise LanewiseError("a list, tuple or dict is no number: name an element of it")
    if Kind.ARRAY in kinds and kinds & {Kind.LANES, Kind.VECTOR}:
        raise LanewiseError("an array and numbers of lanes do not go together: name an element of the array")
    for kind in (Kind.ARRAY, Kind.VECTOR, Kind.LANES):
        if kind in kinds:
            return kind
    return Kind.SCALAR


def _shaped(value: Value, kind: Kind) -> AnyArray:
    """Return the data of a value so that NumPy combines them with others of a kind."""
    data = widened(value.data)
    return data[:, None] if kind is Kind.VECTOR and value.kind is Kind.LANES else data


def _combined(
    function: Callable[[Any, Any], Any], one: Value, other: Value, op: ast.AST | None = None
) -> Value:
    """Return what an operator makes of two values."""
    kind = _common(one, other)
    left, right = _shaped(one, kind), _shaped(other, kind)
    if isinstance(op, ast.LShift | ast.RShift) and ((right < 0) | (right > 63)).any():
        raise LanewiseError("a shift is by 0 to 63 bits")
    return Value(kind, np.asarray(function(left, right)))
