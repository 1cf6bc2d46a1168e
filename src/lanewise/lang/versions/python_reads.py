"""What a kernel reads of Python while it is traced: values that may change before the next launch.

A walk begins at the kernel's function, its Constexpr values and the device functions that it has called. It
follows globals, closures, attributes, containers, arrays and other functions, and leaves two things: `state`,
which is equal for equal values, and `checks`, by which `guard.py` sees quickly that nothing has changed.
Python's own library, lanewise and other installed packages are taken not to change.

What the code of a function reads from outside is in its bytecode. `cfg.tile.rows` is one read, a *chain*: the
attributes after the variable are known before the code runs, so that a change of `cfg.name` does not count.
"""

import dis
import functools
import sys
import sysconfig
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from importlib.util import resolve_name
from pathlib import Path
from types import (
    BuiltinMethodType,
    CellType,
    CodeType,
    FunctionType,
    GetSetDescriptorType,
    MappingProxyType,
    MemberDescriptorType,
    MethodType,
    MethodWrapperType,
    ModuleType,
)
from typing import Any

from lanewise.lang.versions.constant_keys import Same, plain_key
from lanewise.lang.versions.guard import Check, GlobalCheck, attribute_of, content_of
from lanewise.records import record

#: A variable, and the attributes that are read from it at once.
Chain = tuple[str, ...]

_GLOBALS = frozenset(["LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"])
_CELLS = frozenset(["LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF"])
_ATTRIBUTES = frozenset(["LOAD_ATTR", "LOAD_METHOD"])
#: Instructions whose argument is the number of a name, after some bits of flags.
_SHIFTS = {
    "LOAD_GLOBAL": 1, "LOAD_NAME": 0, "LOAD_FROM_DICT_OR_GLOBALS": 0, "LOAD_METHOD": 0,
    "LOAD_ATTR": 1 if sys.version_info >= (3, 12) else 0, "LOAD_SUPER_ATTR": 2,
    "IMPORT_NAME": 0, "IMPORT_FROM": 0,
}  # fmt: skip
#: Instructions that stand between two others and do nothing.
_FILLERS = frozenset(["EXTENDED_ARG", "CACHE", "NOP"])
#: Functions whose code is remembered.
_MOST_CODES = 4096


@record(frozen=True)
class CodeReads:
    """What a function, with the functions defined in it, reads from outside."""

    globals: tuple[Chain, ...]
    cells: tuple[Chain, ...]
    #: Modules that it imports when it runs, as they are written.
    imports: tuple[str, ...]
    #: The names of all attributes that it reads of anything.
    attributes: frozenset[str]


@lru_cache(_MOST_CODES)
def code_reads(code: CodeType) -> CodeReads:
    """Return what a code object reads from outside.

    >>> def example():
    ...     return len(cfg.tile.rows)
    >>> code_reads(example.__code__).globals
    (('len',), ('cfg', 'tile', 'rows'))
    """
    chains: dict[str, dict[Chain, None]] = {"global": {}, "cell": {}, "import": {}}
    attributes: set[str] = set()
    for inner in _with_inner(code):
        for kind, chain in _chains(inner, attributes):
            if kind != "cell" or chain[0] in code.co_freevars:
                chains[kind][chain] = None
    imports = tuple(name for (name,) in chains["import"])
    return CodeReads(tuple(chains["global"]), tuple(chains["cell"]), imports, frozenset(attributes))


def _with_inner(code: CodeType) -> Iterator[CodeType]:
    """Yield a code object, and those of the functions defined in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _with_inner(constant)


def _chains(code: CodeType, attributes: set[str]) -> Iterator[tuple[str, Chain]]:
    """Yield each read of a variable with its kind; the names of all attributes are added to `attributes`."""
    kind, chain = "", [""]
    for opcode, name in _named_instructions(code):
        if opcode in _ATTRIBUTES:
            attributes.add(name)
            chain.append(name)
            continue
        if kind:
            yield kind, tuple(chain)
        kind = "global" if opcode in _GLOBALS else "cell" if opcode in _CELLS else ""
        chain = [name]
        if opcode == "IMPORT_NAME":
            yield "import", (name,)
        elif opcode in ("IMPORT_FROM", "LOAD_SUPER_ATTR"):
            attributes.add(name)
    if kind:
        yield kind, tuple(chain)


def _named_instructions(code: CodeType) -> Iterator[tuple[str, str]]:
    """Yield the instructions of a code object with the names that they read; no name for others.

    `dis.get_instructions` does the same, in a time that grows with the square of the code's branches.
    """
    names = code.co_names
    cells = [*code.co_varnames, *(name for name in code.co_cellvars if name not in code.co_varnames)]
    variables, extended = [*cells, *code.co_freevars], 0
    for opcode, byte in zip(code.co_code[::2], code.co_code[1::2], strict=True):
        word, argument = dis.opname[opcode], extended | byte
        extended = argument << 8 if word == "EXTENDED_ARG" else 0
        if word in _FILLERS:
            continue
        if word in _CELLS:
            yield word, variables[argument]
        elif word in _SHIFTS:
            yield word, names[argument >> _SHIFTS[word]]
        else:
            yield word, ""


#: Values that are read of objects of C, and compared by type and value.
_CONSTANTS = (type(None), bool, int, str, bytes, complex, type(Ellipsis), range)
_PACKAGE = str(Path(__file__).parents[2])
_STDLIB = tuple(sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib"))
_INSTALLED = tuple(sysconfig.get_paths()[name] for name in ("purelib", "platlib"))
#: Entries of a class that Python keeps for itself.
_OF_CLASSES = frozenset(
    ["__module__", "__dict__", "__weakref__", "__doc__", "__annotations__", "_abc_impl",
     "__abstractmethods__", "__static_attributes__", "__firstlineno__", "__annotations_cache__",
     "__annotate_func__"]
)  # fmt: skip
#: What `keys()`, `values()` and `items()` of a dictionary return.
_VIEWS: tuple[Any, ...] = type({}.keys()), type({}.values()), type({}.items())
#: The method that looks attributes up.
_LOOKUP = "__getattribute__"
_UNKNOWN, _UNCHANGING = object(), object()


class PythonReads:
    """What a kernel's function and other roots read, as it is now."""

    def __init__(self, roots: Iterable[object]) -> None:
        self._roots = tuple(roots)
        first = next((root for root in self._roots if isinstance(root, FunctionType)), None)
        self._own = (first.__module__ or "").partition(".")[0] if first is not None else ""
        #: Attributes that any code reads: of a module that is passed on, these are followed.
        self._attributes: frozenset[str] = frozenset()
        while True:
            self._walk()
            if self._names <= self._attributes:
                break
            self._attributes |= self._names
        self.state = tuple(self._state)

    def _walk(self) -> None:
        """Go through everything that the roots lead to, in an order that depends on nothing else."""
        self.checks: list[Check | GlobalCheck] = []
        self._state: list[object] = []
        #: Numbers of the values met so far, by their addresses, which `_kept` keeps theirs.
        self._seen: dict[int, int] = {}
        self._kept: list[object] = []
        self._checked: set[tuple[int, str]] = set()
        self._names: set[str] = set()
        self._pending: deque[tuple[object, bool, bool]] = deque()
        for root in self._roots:
            self._visit(root, forced=True)
        while self._pending:
            value, forced, shallow = self._pending.popleft()
            try:
                self._expand(value, forced, shallow)
            except Exception:  # an object that does not let itself be looked at is compared by identity
                self._state.append(Same(value))

    # values ---------------------------------------------------------------------------------------------

    def _visit(self, value: object, forced: bool = False, shallow: bool = False) -> None:
        """Add a value; what it is made of comes later. `shallow` stops at objects of Python's own library."""
        plain = plain_key(value)
        if plain is not None:
            self._state.append(plain)
        elif id(value) in self._seen:
            self._state.append(self._seen[id(value)])
        else:
            self._state.append(self._seen.setdefault(id(value), len(self._seen)))
            self._kept.append(value)
            self._pending.append((value, forced, shallow))

    def _expand(self, value: Any, forced: bool, shallow: bool) -> None:
        """Add what a value is made of."""
        if isinstance(value, FunctionType):
            self._function(value, forced)
        elif getattr(type(value), "is_device_function", False):
            self._visit(value.function, forced=True)
        elif isinstance(value, MethodType):
            self._parts(value.__func__, value.__self__)
        elif isinstance(value, BuiltinMethodType | MethodWrapperType):
            self._builtin_method(value)
        elif isinstance(value, _VIEWS):
            self._state.append(Same(type(value)))
            self._visit(value.mapping)
        elif isinstance(value, functools.partial):
            self._parts(value.func, value.args, value.keywords)
        elif isinstance(value, staticmethod | classmethod):
            self._parts(value.__func__)
        elif isinstance(value, property):
            self._parts(value.fget)
        elif isinstance(value, ModuleType):
            self._module(value)
        elif isinstance(value, type):
            self._class(value)
        elif not self._contents(value, shallow):
            self._visit(attribute_of(value, "__wrapped__"))

    def _parts(self, *values: object) -> None:
        for value in values:
            self._visit(value)

    def _builtin_method(self, value: Any) -> None:
        """Add the object that a method of C is bound to, as in `get = table.get`; a module's has none."""
        holder = value.__self__
        if holder is None or isinstance(holder, ModuleType | type):
            self._state.append(Same(value))
        else:
            self._state.append((Same(type(value)), value.__name__))
            self._visit(holder)

    def _check(self, template: str, *operands: object) -> None:
        self.checks.append(Check(template, operands))

    def _contents(self, value: object, shallow: bool) -> bool:
        """Add what a container, an array or an object holds; return whether it holds anything known."""
        kind = type(value)
        home = _home(kind)
        known = True
        if isinstance(value, tuple):
            self._children(kind, value, shallow)
        elif isinstance(value, list | deque):
            self._check("same_items({}, {})", value, tuple(value))
            self._children(kind, value, shallow)
        elif isinstance(value, dict | MappingProxyType):
            self._mapping(value, shallow)
        elif isinstance(value, set | frozenset):
            self._check("same_items({}, {})", value, tuple(value))
            self._children(kind, value, shallow)
        elif home == _PACKAGE:
            self._state.append(Same(value))
            return True
        elif isinstance(value, int | float | str | bytes | complex):  # of a class of one's own
            self._state.append(Same(value))
        elif (content := content_of(value)) is not None:
            self._array(value, content)
        else:
            known = False
        attributes = attribute_of(value, "__dict__")
        machinery = home == _STDLIB and not _is_namespace(kind)  # a logger, say, leads to all other ones
        if type(attributes) is dict and not (shallow and machinery):
            self._entries(attributes, attributes, shallow or machinery)
            known = True
        known = self._slots(value) or known
        if self._is_own(kind):
            self._visit(kind)
        else:
            self._state.append(Same(kind if known else value))
        return known

    def _children(self, kind: type, values: Iterable[object], shallow: bool) -> None:
        held = list(values)
        self._state.append((Same(kind), len(held)))
        for item in held:
            self._visit(item, shallow=shallow)

    def _mapping(self, value: Mapping[object, object], shallow: bool) -> None:
        keys, held = tuple(value), tuple(value.values())
        self._check("same_mapping({}, {}, {})", value, keys, held)
        self._children(dict, keys, shallow)
        for item in held:
            self._visit(item, shallow=shallow)

    def _entries(self, mapping: Mapping[str, object], names: Iterable[str], shallow: bool) -> None:
        """Add attributes of an object or a class, with the check that no other ones have come."""
        self._check("len({}) == {}", mapping, len(mapping))
        for name in names:
            self._visit(self._entry(mapping, name), shallow=shallow)

    def _array(self, value: Any, content: tuple[object, ...]) -> None:
        """Add an array: its type, shape and bytes; of an array of objects, the objects."""
        if content[-1] is None:
            self._children(type(value), value.ravel().tolist(), shallow=False)
            self._check("same_items({}.ravel().tolist(), {})", value, tuple(value.ravel().tolist()))
            return
        self._check("content_of({}) == {}", value, content)
        self._state.append(content)

    def _slots(self, value: object) -> bool:
        """Add the attributes that an object of one's own class has in slots; return whether it has any."""
        known = False
        for base in type(value).__mro__:
            if not self._is_own(base):
                continue
            for name, member in vars(base).items():
                if not isinstance(member, MemberDescriptorType):
                    continue
                child = attribute_of(value, name, _UNKNOWN)
                if child is not _UNKNOWN:
                    self._check(f"{{}}.{name} is {{}}", value, child)
                    self._visit(child)
                    known = True
        return known

    def _class(self, value: type) -> None:
        """Add a class of one's own: its attributes and methods, and those of its bases."""
        if not self._is_own(value):
            self._state.append(Same(value))
            return
        entries = vars(value)
        names = [
            name
            for name, entry in entries.items()
            if name not in _OF_CLASSES and not isinstance(entry, MemberDescriptorType | GetSetDescriptorType)
        ]
        self._entries(entries, names, shallow=True)
        self._parts(*value.__bases__)

    def _module(self, value: ModuleType) -> None:
        """Add a module that is passed on: those of its variables that some code reads as attributes."""
        if _is_unchanging(value):
            self._state.append(Same(value))
            return
        for name in sorted(self._attributes & vars(value).keys()):
            self._entry(vars(value), name)
            self._visit(vars(value)[name])

    # functions ------------------------------------------------------------------------------------------

    def _function(self, value: FunctionType, forced: bool) -> None:
        """Add a function: its code, its defaults, and what its code reads."""
        home = _home_of_file(value.__code__.co_filename)
        foreign = home is not None and (value.__module__ or "").partition(".")[0] != self._own
        if (foreign or home == _PACKAGE) and not forced:
            self._state.append(Same(value))
            return
        self._check("{}.__code__ is {}", value, value.__code__)
        if value is not self._roots[0]:  # a kernel's are those of its parameters, read when it is decorated
            self._check("{}.__defaults__ is {}", value, value.__defaults__)
            self._check("{}.__kwdefaults__ is {}", value, value.__kwdefaults__)
        self._state += [value.__code__, Same(value.__globals__)]
        self._parts(value.__defaults__, value.__kwdefaults__)
        reads = code_reads(value.__code__)
        cells = dict(zip(value.__code__.co_freevars, value.__closure__ or (), strict=True))
        for chain in reads.cells:
            self._cell(cells[chain[0]], chain)
        if home == _PACKAGE:
            return  # of a kernel of the library only what it was made with
        self._names |= reads.attributes
        for chain in reads.globals:
            self._global(value.__globals__, chain)
        for name in reads.imports:
            self._import(value.__globals__, name)

    def _cell(self, cell: CellType, chain: Chain) -> None:
        try:
            value = cell.cell_contents
        except ValueError:
            self._check("is_empty({})", cell)
            self._state.append("empty")
            return
        if self._is_new(cell, ""):
            self._check("{}.cell_contents is {}", cell, value)
        self._follow(value, chain[1:])

    def _global(self, variables: dict[str, Any], chain: Chain) -> None:
        name = chain[0]
        builtin = variables.get("__builtins__", {})
        around = vars(builtin) if isinstance(builtin, ModuleType) else builtin
        value = variables.get(name, around.get(name, _UNKNOWN))
        self._state.append(chain)
        if value is _UNKNOWN:
            self._check("{} not in {}", name, variables)
            return
        if self._is_new(variables, name):
            self.checks.append(GlobalCheck(variables, name, value))
        self._follow(value, chain[1:])

    def _import(self, variables: dict[str, Any], name: str) -> None:
        package = variables.get("__package__") or ""
        for full_name in {name, f"{package}.{name}" if package else name, *_relative(name, package)}:
            module = sys.modules.get(full_name)
            if module is not None:
                if self._is_new(sys.modules, full_name):
                    self._check("{}[{}] is {}", sys.modules, full_name, module)
                self._visit(module)

    def _is_new(self, holder: object, name: str) -> bool:
        """Return whether an entry of a mapping or a cell has no check yet."""
        key = id(holder), name
        if key in self._checked:
            return False
        self._checked.add(key)
        self._kept.append(holder)
        return True

    # attributes -----------------------------------------------------------------------------------------

    def _follow(self, value: object, names: Chain) -> None:
        """Add what the attributes of a chain lead to; a value whose attributes are computed, as a whole."""
        for name in names:
            child = self._attribute(value, name)
            if child is _UNCHANGING:
                return
            if child is _UNKNOWN:
                break
            value = child
        self._visit(value)

    def _entry(self, mapping: Mapping[str, object], name: str) -> Any:
        """Add the check of an entry of a module's, class's or object's variables; return what it holds."""
        if self._is_new(mapping, name):
            self._check("{}[{}] is {}", mapping, name, mapping[name])
        self._state.append(name)
        return mapping[name]

    def _attribute(self, value: object, name: str) -> object:
        """Return an attribute that is plain data, with its check added; _UNKNOWN if it is computed."""
        if isinstance(value, ModuleType):
            if _is_unchanging(value):
                self._state.append(Same(value))
                return _UNCHANGING
            return self._plain(value, name) if name in vars(value) else _UNKNOWN
        kind = type(value)
        if _home(kind) == _PACKAGE or isinstance(value, MethodType | functools.partial):
            return _UNKNOWN
        of_class = _of_class(kind, name)
        if isinstance(value, type):
            held = _of_class(value, name)
            usual = _of_class(kind, _LOOKUP) is vars(type)[_LOOKUP] and of_class is _UNKNOWN
            return self._plain(value, name) if usual and _is_plain(held) else _UNKNOWN
        if isinstance(of_class, GetSetDescriptorType | MemberDescriptorType) and not self._is_own(kind):
            return self._field(value, name)
        if _of_class(kind, _LOOKUP) is not vars(object)[_LOOKUP] or hasattr(type(of_class), "__set__"):
            return _UNKNOWN
        held = attribute_of(value, "__dict__")
        in_object = type(held) is dict and name in held
        return self._plain(value, name) if in_object or _is_plain(of_class) else _UNKNOWN

    def _plain(self, value: object, name: str) -> object:
        """Add the check of an attribute that Python only looks up; return what it is."""
        child = getattr(value, name)
        if self._is_new(value, name):
            self._check(f"{{}}.{name} is {{}}", value, child)
        self._state.append(name)
        return child

    def _field(self, value: object, name: str) -> object:
        """Return a field of an object of C, such as an array's shape, if it is a number or made of such."""
        with suppress(Exception):
            child = getattr(value, name)
            made = child if isinstance(child, tuple) else (child,)
            if all(
                type(constant) in _CONSTANTS or type(constant).__name__.lower().endswith("dtype")
                for constant in made
            ):
                self._check(f"{{}}.{name} == {{}}", value, child)
                self._state += [name, repr(child)]
                return _UNCHANGING
        return _UNKNOWN

    # whose it is ----------------------------------------------------------------------------------------

    def _is_own(self, kind: type) -> bool:
        """Return whether a class is the user's: of no installed package but the kernel's own."""
        home = _home(kind)
        if home is None:
            return True
        return home == _INSTALLED and kind.__module__.partition(".")[0] == self._own


def _of_class(kind: type, name: str) -> object:
    """Return what a class or one of its bases has under a name, as it stands there."""
    return next((vars(base)[name] for base in kind.__mro__ if name in vars(base)), _UNKNOWN)


def _is_plain(held: object) -> bool:
    """Return whether what a class has under a name is there and no method, property or other descriptor."""
    return held is not _UNKNOWN and not hasattr(type(held), "__get__")


def _is_namespace(kind: type) -> bool:
    """Return whether objects of a class only hold attributes: it has no public methods."""
    return not any(name[0] != "_" for base in kind.__mro__ for name in vars(base))


def _relative(name: str, package: str) -> Iterable[str]:
    with suppress(ImportError, ValueError):
        yield resolve_name(f".{name}", package)


def _is_unchanging(module: ModuleType) -> bool:
    """Return whether a module is lanewise's or Python's own."""
    return _home_of_module(module.__name__) in (_PACKAGE, _STDLIB)


def _home(kind: type) -> object:
    """Return where a class is from: Python's library, an installed package, lanewise; None for a user's."""
    return _home_of_module(kind.__module__)


def _home_of_module(name: Any) -> object:
    if name in ("builtins", "sys") or str(name).partition(".")[0] in sys.stdlib_module_names - {"__main__"}:
        return _STDLIB
    file = getattr(sys.modules.get(name), "__file__", None)
    return None if file is None else _home_of_file(file)


@functools.cache
def _home_of_file(file: str) -> object:
    if file.startswith(_PACKAGE):
        return _PACKAGE
    if file.startswith(_INSTALLED):
        return _INSTALLED
    return _STDLIB if file.startswith(_STDLIB) or file.startswith("<frozen ") else None
