"""A command to copy for a kernel that was given without arguments: `lanewise check file.cu` and nothing more.

Grid and block are read from the launch `kernel<<<grid, block>>>(…)` in the file, if its sizes are constants
there; it has one `--arg` for each parameter, by its name and type in C++. Names bring arguments into order.
"""

from __future__ import annotations

import ast
import operator
import re
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from lanewise.errors import LanewiseError
from lanewise.formats import SPELLINGS
from lanewise.hints import instead_of
from lanewise.layout.text import at_commas
from lanewise.ptx.arguments import ParameterTypes, described
from lanewise.ptx.cuda_types import elements_of
from lanewise.ptx.model.names import plain_name

if TYPE_CHECKING:
    from lanewise.ptx import Entry, Variable

#: The elements of a suggested array, and the value of a suggested integer: large enough for a small launch.
_SIZE = 1024
#: The threads of a suggested block where neither the kernel nor a launch in the file says how many.
_THREADS = 128
#: The bytes of dynamic shared memory where a kernel has some and no launch says how many: all without asking.
_SHARED = 48 << 10
_DYNAMIC = re.compile(r"\.extern\s+\.shared")
_DEFINE = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)[ \t]+(.+?)[ \t]*(?://.*)?$", re.MULTILINE)
_CONSTANT = re.compile(
    r"\b(?:int|unsigned|size_t|u?int(?:32|64)_t|auto|long|dim3)\s+(\w+)\s*(?:=\s*([^;{}]+)|([({][^;]*[)}]))\s*;"
)
_LAUNCH = r"\b{name}\s*(?:<[^<>;]*>\s*)?<<<(.*?)>>>"
_BINARY: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.floordiv,
    ast.Mod: operator.mod,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
}


def suggested_command(command: str, entry: Entry, file: Path, grid: str | None, block: str | None) -> str:
    """Return a command that runs a kernel on made-up arrays, in lines that a shell takes as they are."""
    sizes, arguments = suggested_launch(entry, grid, block)
    about = ", ".join(parameter_names(entry))
    name = entry.demangled.partition("(")[0].removeprefix(
        "void "
    )  # of a template the type of its result is known
    chosen = ["--entry", shlex.quote(name)] if len(entry.module.entries) > 1 else []
    options = " ".join([*chosen, *(f"{option} {size}" for option, size in sizes.items())])
    lines = [f"    lanewise {command} {shlex.quote(str(file))} {options} \\"]
    names = _types(entry).names or [""] * len(arguments)
    named = [f"{name}={text}" if name else text for name, text in zip(names, arguments, strict=True)]
    lines.append("        " + " ".join(f"--arg {text}" for text in named))
    return f"# {about}\n" + "\n".join(lines)


def parameter_names(entry: Entry) -> list[str]:
    """Return the parameters of a kernel with their types in C++, if its source is known: `n (int)`."""
    types = _types(entry)
    names = types.names or [""] * len(entry.parameters)
    texts = types.texts or [described(parameter) for parameter in entry.parameters]
    return [f"{name} ({text})" if name else text for name, text in zip(names, texts, strict=True)]


def arguments_in_order(given: Sequence[str], entry: Entry) -> list[str | None] | None:
    """Return the text of each parameter's argument, None where there is none; or None if there are too many.

    `n=1024` is the argument of the parameter n; those without a name fill the others in order.
    """
    names = list(_types(entry).names or (parameter.name for parameter in entry.parameters))
    texts: list[str | None] = [None] * len(names)
    unnamed = []
    for argument in given:
        name, equals, text = argument.partition("=")
        if not equals or not name.isidentifier() or Path(argument).is_file():
            unnamed.append(argument)
        elif name not in names:
            raise LanewiseError(
                f"--arg {argument}: the kernel has no parameter {name}{instead_of(name, names)}"
            )
        elif texts[names.index(name)] is not None:
            raise LanewiseError(f"--arg {argument}: {name} is given twice")
        else:
            texts[names.index(name)] = text
    free = [number for number, text in enumerate(texts) if text is None]
    if len(unnamed) > len(free):
        return None
    for number, argument in zip(free, unnamed, strict=False):
        texts[number] = argument
    return texts


def _types(entry: Entry) -> ParameterTypes:
    """Return the names and types of a kernel's parameters in its source, if that is known."""
    return ParameterTypes(entry.function, entry.module.cuda.text if entry.module.cuda is not None else "")


def suggested_launch(
    entry: Entry, grid: str | None = None, block: str | None = None
) -> tuple[dict[str, str], list[str]]:
    """Return the sizes of a launch on made-up arrays, by the names of their options, and its arguments."""
    source = entry.module.cuda.text if entry.module.cuda is not None else ""
    launch = _launch_in(source, plain_name(entry.function.name)) if source else None
    required = entry.function.limit("reqntid")
    sizes = {
        "--grid": grid or (launch and launch[0]) or "1",
        "--block": block or (launch and launch[1]) or ",".join(map(str, required or _usual_block(entry))),
    }
    if _DYNAMIC.search(entry.module.text):
        sizes["--shared"] = (launch and launch[2]) or str(_SHARED)
    types = ParameterTypes(entry.function, source)
    arguments = [
        _argument(text, variable)
        for text, variable in zip(types.texts or [""] * len(entry.parameters), entry.parameters, strict=True)
    ]
    return sizes, arguments


def _usual_block(entry: Entry) -> tuple[int, ...]:
    """Return a block for a kernel of which no launch is known: of two dimensions if it asks for a second."""
    return (16, 16) if "%tid.y" in entry.module.text else (_THREADS,)


def _argument(text: str, variable: Variable) -> str:
    """Return a value for a parameter: random numbers for what is read only, zeros for what may be written."""
    bare = text.replace("__restrict__", "").strip()
    if bare.endswith("*"):
        pointee = bare.removesuffix("*").strip()
        fill = "random" if re.search(r"\bconst\b", pointee) else "zeros"
        return f"{fill}:{_array_type(pointee)}:{_SIZE}"
    if variable.dims or variable.vector > 1:
        return f"hex:{'00' * variable.size}"
    if variable.type[0] == "f":
        return "1.0"
    if not bare and variable.size == 8:  # PTX alone does not tell a pointer from a number
        return f"zeros:f32:{_SIZE}"
    return str(_SIZE) if variable.size >= 4 else "1"


def _array_type(pointee: str) -> str:
    """Return the name that `--arg` has for the elements behind a pointer; f32 where they are not known.

    >>> _array_type("const __half"), _array_type("float4"), _array_type("Params")
    ('f16', 'f32', 'f32')
    """
    known = elements_of(pointee)
    if known is None:
        return "f32"
    if known[0] in SPELLINGS:
        return SPELLINGS[known[0]]
    integer = re.fullmatch(r"(u?)int(\d+)", known[0])
    return f"{integer[1] or 'i'}{integer[2]}" if integer else "u8"


def _launch_in(source: str, name: str) -> tuple[str, str, str] | None:
    """Return grid, block and dynamic shared memory of the first launch whose sizes are constants of the file.

    >>> _launch_in("dim3 g(N / 8, 2); k<<<g, dim3(32, 4), 0, s>>>(x); \\n#define N 64", "k")
    ('8,2', '32,4', '')
    """
    values = {match[1]: match[2] for match in _DEFINE.finditer(source)}
    for match in _CONSTANT.finditer(source):
        values.setdefault(match[1], match[2] or match[3])
    for launch in re.finditer(_LAUNCH.format(name=re.escape(name)), source, re.DOTALL):
        grid, block, shared = (
            _sizes(part, values) for part in (*at_commas(launch[1], "()[]{}"), "", "", "")[:3]
        )
        if grid and block:
            return grid, block, shared
    return None


def _sizes(text: str, values: dict[str, str], depth: int = 0) -> str:
    """Return a grid or block as the command line has it; empty if it is no constant."""
    text = text.strip()
    made = re.fullmatch(r"(?:dim3\s*)?[({](.*)[)}]", text, re.DOTALL)
    if made and len(at_commas(made[1], "()[]{}")) <= 3 and (text.startswith(("dim3", "{")) or "," in made[1]):
        sizes = [_value(part, values) for part in at_commas(made[1], "()[]{}")]
    elif text in values and _value(text, values) is None and depth < len(values):
        return _sizes(values[text], values, depth + 1)
    else:
        sizes = [_value(text, values)]
    return ",".join(map(str, sizes)) if sizes and all(size is not None and size > 0 for size in sizes) else ""


def _value(text: str, values: dict[str, str]) -> int | None:
    """Return the value of an integer expression over constants of the file; None if it is none.

    >>> _value("(N + 127) / 128", {"N": "1 << 10"})
    8
    """
    try:
        tree = ast.parse(re.sub(r"(?<=\d)[uUlL]+\b", "", text.strip()), mode="eval").body
        return _evaluated(tree, values, 0)
    except (SyntaxError, ValueError, ZeroDivisionError, OverflowError, RecursionError, MemoryError):
        return None


def _evaluated(node: ast.expr, values: dict[str, str], depth: int) -> int:
    match node:
        case ast.Constant(value=int() as value):
            return value
        case ast.Name(id=name) if name in values and depth <= len(values):
            inner = ast.parse(re.sub(r"(?<=\d)[uUlL]+\b", "", values[name].strip()), mode="eval").body
            return _evaluated(inner, values, depth + 1)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            first, second = _evaluated(left, values, depth), _evaluated(right, values, depth)
            if isinstance(op, ast.LShift) and not 0 <= second < 64:
                raise ValueError("a shift out of range")
            return _BINARY[type(op)](first, second)
    raise ValueError(ast.dump(node))
