"""Module and Entry: parsed PTX, and a kernel of it, as later rooms walk them.

The parsers in `syntax/` build them; how an entry is launched, a room further down provides.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Container, Iterator, Mapping, MutableMapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from lanewise.engines import (
    GLOBALS,
    KERNEL_FIDELITY,
    LAUNCH,
    SASS_LISTING,
    SHOW_HTML,
    FidelityNote,
    Launchable,
)
from lanewise.errors import IllegalInstruction, LanewiseError
from lanewise.hints import Suggests, at_caller, instead_of_attribute
from lanewise.isa import find_arch
from lanewise.ptx.model.directives import Alias, Dwarf, File, Pragma, Section, Variable
from lanewise.ptx.model.function import Function, Statement
from lanewise.ptx.model.inlined_code import authors_line
from lanewise.ptx.model.names import demangle, listed, matching, missing_entry
from lanewise.ptx.model.statements import Loc
from lanewise.ptx.targets import assembled_for
from lanewise.tracebacks import short_traceback, shorten

if TYPE_CHECKING:
    from lanewise.isa.occupancy import Occupancy
    from lanewise.ptx.model.source_names import SourceNames
    from lanewise.ptx.tools.assembler import Resources


@dataclass(frozen=True)
class LeftOut:
    """A declaration or a header of a source that was not compiled: what it is, its name, its file and line.

    >>> print(LeftOut("function", "main", "gemm.cu", 40))
    function main (gemm.cu:40)
    """

    what: str
    name: str
    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.what} {self.name} ({self.file}:{self.line})"


#: Configurations of a kernel that are remembered.
_MOST_CONFIGURED = 1024
#: Kernels that the text of a module names.
_MOST_SHOWN = 3

Item = Variable | Function | Pragma | File | Alias | Section | Dwarf


@dataclass(frozen=True, eq=False)
class Entry(Suggests):
    """A kernel of a module: what `module["name"]` gives, and `module["name"][grid, block](…)` launches."""

    INSTEAD: ClassVar = dict.fromkeys(("launch", "run", "call"), "entry[grid, block](…) launches it")

    module: Module = field(repr=False)
    function: Function = field(repr=False)
    #: What was configured before: a warm launch begins with a look here.
    _configured: dict[object, Launchable] = field(default_factory=dict, init=False, repr=False)

    @property
    def name(self) -> str:
        """Its name in the PTX."""
        return self.function.name

    @property
    def parameters(self) -> tuple[Variable, ...]:
        """The variables that a launch gives its arguments to, in order."""
        return self.function.parameters

    @property
    def body(self) -> list[Statement]:
        """Its statements; none of a kernel that is only declared."""
        return self.function.body or []

    @cached_property
    def demangled(self) -> str:
        """Its name as C++ writes it; its PTX name if that is not mangled."""
        return demangle(self.name)

    def __iter__(self) -> NoReturn:
        error = LanewiseError(f"a kernel is launched, {self.name}[grid, block](…), and not iterated over")
        shorten(error)
        raise error

    def __getitem__(self, configuration: object) -> Any:
        """The kernel with its grid, block and bytes of shared memory, to be called with its arguments."""
        try:
            return self._configured[configuration]
        except (KeyError, TypeError, ValueError):  # a list or a memoryview in it, which cannot be looked up
            pass
        try:
            configured = LAUNCH.function(self, configuration)
        except LanewiseError as error:
            shorten(error)
            raise
        if len(self._configured) >= _MOST_CONFIGURED:
            self._configured.clear()
        with suppress(TypeError, ValueError):
            self._configured[configuration] = configured
        return configured

    @short_traceback
    def __call__(self, *arguments: object, **options: object) -> Any:
        """An error: a launch has a grid and a block."""
        raise LanewiseError(
            f"{self.demangled} is launched with a grid and a block: kernel[grid, block](…), not kernel(…)"
        )

    def ptx(self, arch: str | None = None) -> str:
        """The PTX of its module; with an arch, an error if it cannot run there.

        >>> from lanewise.ptx import parse
        >>> kernel = parse(".version 9.0\\n.target sm_80\\n.visible .entry k() { ret; }")["k"]
        >>> kernel.ptx("sm_90").splitlines()[1]
        '.target sm_80'
        """
        self._arch(arch)
        return self.module.text or str(self.module)

    def sass(self, arch: str | None = None, *, lines: bool = False, encodings: bool = False) -> str:
        """Its machine code for an arch as text, by ptxas and nvdisasm; no GPU is needed.

        With `lines` the lines of the source stand between the instructions that come from them, with
        `encodings` the bits of each instruction beside it.
        """
        from lanewise.ptx.tools.assembler import sass_of

        listing = SASS_LISTING.function(self.module, self._arch(arch), lines=lines, encodings=encodings)
        return sass_of(listing, self.name)

    def fidelity(self, arch: str | None = None) -> Sequence[FidelityNote]:
        """Where a GPU may give other bits than the machine: a list of `lanewise.machine.Note`, by line."""
        return KERNEL_FIDELITY.function(self, arch)

    def resources(self, arch: str | None = None) -> Resources:
        """What ptxas says that it uses on an arch: registers, spills, shared, local and constant bytes."""
        from lanewise.ptx.tools.assembler import ptxas

        only = ("--entry", self.name)
        return ptxas(self.module, self._arch(arch), options=only).resources[self.name]

    def occupancy(
        self, arch: str | None = None, *, block: int | Sequence[int] | None = None, shared_bytes: int = 0
    ) -> Occupancy:
        """How many blocks and warps of it a multiprocessor of an arch holds at a time, and what bounds them.

        `block` are the threads of a block, `shared_bytes` its dynamic shared memory. Without a block it is
        the one that the kernel requires, or else one with which most warps are resident.
        """
        return occupancy_of(self.resources(arch), self.function, block, shared_bytes)

    def _arch(self, arch: str | None) -> str:
        """The arch to assemble for: the module's target, or the one given if the PTX runs there."""
        return self.module.target if arch is None else assembled_for(self.module.target, find_arch(arch))

    def __repr__(self) -> str:
        return f"<entry {self.demangled}>"

    def _repr_html_(self) -> str:
        return SHOW_HTML.function(self)


def occupancy_of(
    used: Resources, function: Function, block: int | Sequence[int] | None, shared_bytes: int
) -> Occupancy:
    """How many blocks of a function with these resources a multiprocessor of their arch holds at a time."""
    threads = function.limit("reqntid") if block is None else (block,) if isinstance(block, int) else block
    if threads is not None:
        return used.occupancy(prod(threads), shared_bytes)
    bound = function.limit("maxntid")
    if bound is None:
        return used.occupancy(shared_bytes=shared_bytes)
    return used.occupancy(shared_bytes=shared_bytes, most_threads=prod(bound))


@dataclass(frozen=True)
class CompiledSource(ABC):
    """The source that a module was compiled from, what compiled it, and for which arch it is meant to run.

    `note` says what is out of the ordinary, such as another target than the arch asked for.
    """

    text: str = field(repr=False)
    arch: str
    name: str = "kernel.cu"
    options: tuple[str, ...] = ()
    compiler: str = ""
    note: str = ""
    log: str = field(default="", repr=False)
    #: What was not compiled: host code, and headers that were left empty.
    left_out: tuple[LeftOut, ...] = ()
    #: The names in the PTX of the instances of templates that were compiled with the module.
    instances: Mapping[str, str] = field(default_factory=dict, repr=False)
    #: Why some kernels of the source are not in the PTX, by name.
    refused: Mapping[str, str] = field(default_factory=dict, repr=False)

    @abstractmethod
    def reason_missing(self, name: str) -> str:
        """Why a kernel of the source is not in the PTX; empty if the source has no such kernel."""

    @abstractmethod
    def texts(self) -> list[str]:
        """The source, and the headers of its project that it includes."""

    @abstractmethod
    def default_instance(self, name: str) -> str:
        """The instance that a kernel's name alone means, if its template has defaults for all; else empty."""

    @abstractmethod
    def launched_instances(self, name: str) -> Module | None:
        """The source compiled with the instances of a template that host code launches; None if it is there.

        A compiler of host code is asked for them where the module's own compiler did not see them.
        """

    @abstractmethod
    def instance(self, expression: str, known: Container[str]) -> tuple[Module, str]:
        """The source compiled with an instance of a template, and the name that has in the PTX.

        `known` are the entries that were there before.
        """


@dataclass
class Module:
    """Parsed PTX: its header, and everything that it declares, in order; `str(module)` is PTX again.

    >>> from lanewise.ptx import parse
    >>> module = parse(".version 8.0\\n.target sm_90a\\n.address_size 64\\n.visible .entry k() { ret; }")
    >>> module.version, module.target, module.address_size, list(module.entries)
    ('8.0', 'sm_90a', 64, ['k'])
    """

    version: str
    target: str
    target_options: tuple[str, ...] = ()
    #: 64 where the PTX does not say: so ptxas takes it.
    address_size: int = 64
    says_address_size: bool = True
    items: list[Item] = field(default_factory=list)
    #: The text it was parsed from; empty if it was not.
    text: str = field(default="", compare=False, repr=False)
    #: The CUDA C++ it was compiled from, if it was compiled here.
    cuda: CompiledSource | None = field(default=None, compare=False, repr=False)
    INSTEAD: ClassVar = {
        **dict.fromkeys(("get_function", "kernels", "kernel"), 'module["name"] is a kernel'),
        **dict.fromkeys(("ptx", "source", "to_ptx"), "str(module) is its PTX"),
        **dict.fromkeys(
            ("save", "write", "dump"), 'Path("kernel.ptx").write_text(str(module)) writes its PTX'
        ),
        **dict.fromkeys(("launch", "run"), 'module["name"][grid, block](…) launches a kernel'),
    }
    #: The names of the source's variables, if the kernel language traced it.
    names: SourceNames | None = field(default=None, compare=False, repr=False)
    #: What the host has written to variables, for a device on which the module is not loaded yet.
    written_globals: dict[str, bytes] = field(default_factory=dict, compare=False, repr=False)
    #: The module that an instance of a template was compiled for, and the instances compiled for it.
    root: Module | None = field(default=None, compare=False, repr=False)
    instances: list[Module] = field(default_factory=list, compare=False, repr=False)
    #: Entries that were asked for before, by the name used; instances of templates are compiled once.
    _found: dict[str, Entry] = field(default_factory=dict, compare=False, repr=False)

    @property
    def arch(self) -> str:
        """The GPU that the module is for; its target differs if the compiler had to compile for another."""
        return self.cuda.arch if self.cuda is not None else self.target

    def _functions(self, is_entry: bool) -> dict[str, Function]:
        functions: dict[str, Function] = {}
        for item in self.items:
            if (
                isinstance(item, Function)
                and item.is_entry is is_entry
                and (
                    item.body is not None or item.name not in functions
                )  # the definition, not its declaration
            ):
                functions[item.name] = item
        return functions

    @cached_property
    def entries(self) -> Mapping[str, Function]:
        """The kernels, by their names in the PTX."""
        return self._functions(is_entry=True)

    @cached_property
    def functions(self) -> Mapping[str, Function]:
        """The device functions, by name, including those that are only declared."""
        return self._functions(is_entry=False)

    @cached_property
    def variables(self) -> Mapping[str, Variable]:
        """The variables declared outside functions, by name."""
        return {item.name: item for item in self.items if isinstance(item, Variable)}

    @property
    def globals(self) -> MutableMapping[str, Any]:
        """The `__device__`, `__constant__` and `__managed__` variables, by name: read and written as arrays.

        `module.globals["scale"][:] = values` is what a kernel reads next, on the CPU and on a GPU.
        """
        return GLOBALS.function(self)

    @cached_property
    def aliases(self) -> Mapping[str, str]:
        """Further names of functions."""
        return {item.name: item.target for item in self.items if isinstance(item, Alias)}

    @cached_property
    def files(self) -> Mapping[int, str]:
        """The source files by the number that `.loc` uses."""
        everything = [
            *self.items,
            *(part for item in self.items if isinstance(item, Function) for part in item.body or ()),
        ]
        return {item.index: item.name for item in everything if isinstance(item, File)}

    @cached_property
    def _chains(self) -> dict[int, list[tuple[int, int, int]]]:
        """The place of each `.loc`, then the call that inlined it, and so on, by the identity of the `.loc`.

        A function may be inlined in many places: the call is that of the nearest `.loc` before, in the same
        kernel, or of the first one after if there is none.
        """
        chains: dict[int, list[tuple[int, int, int]]] = {}
        for function in (item for item in self.items if isinstance(item, Function)):
            locs = [part for part in function.body or () if isinstance(part, Loc)]
            inlined = [
                (location, location.inlined_at) for location in locs if location.inlined_at is not None
            ]
            callers = {inlined_at.place: caller for inlined_at, caller in reversed(inlined)}
            for loc in locs:
                chain, caller = [loc.place], loc.inlined_at
                if caller is not None:
                    callers[loc.place] = caller
                while caller is not None and caller not in chain:
                    chain.append(caller)
                    caller = callers.get(caller)
                chains[id(loc)] = chain
        return chains

    @cached_property
    def _lineless(self) -> Mapping[int, Loc]:
        """For each `.loc` of line 0, by `id`: the next of its function that has a line, or the one before."""
        places: dict[int, Loc] = {}
        for function in (item for item in self.items if isinstance(item, Function)):
            known: Loc | None = None
            waiting: list[Loc] = []
            for part in (part for part in function.body or () if isinstance(part, Loc)):
                if not part.source_line:
                    waiting.append(part)
                    continue
                places |= {id(operation): part for operation in waiting}
                known, waiting = part, []
            if known is not None:
                places |= {id(operation): known for operation in waiting}
        return places

    def origin(self, loc: Loc) -> tuple[str, int]:
        """The file and line that a `.loc` names; of code inlined from a library, those of its caller.

        Of the calls through which code was inlined, the first one counts that is in no header of CUDA, CCCL,
        CuTe or CUTLASS, and that is not a line of inline PTX in another file than the kernel's. Code that the
        compiler moved is of line 0: the next line that is named stands for it.

        >>> from lanewise.ptx import parse
        >>> files = '.file 1 "k.cu"\\n.file 2 "include/cute/mma.hpp"\\n.file 3 "tile.h"'
        >>> head = '.version 8.0\\n.target sm_80\\n' + files + '\\n.entry k() {'
        >>> module = parse(head + ".loc 2 91 5, function_name f, inlined_at 1 70 3\\n ret; }")
        >>> module.origin(module["k"].body[0])
        ('k.cu', 70)
        >>> module = parse(head + ".loc 3 91 5, function_name f, inlined_at 1 70 3\\n ret; }")
        >>> module.origin(module["k"].body[0])
        ('tile.h', 91)
        """
        return authors_line(self.inlined_through(loc))

    def with_line(self, error: IllegalInstruction) -> IllegalInstruction:
        """The error about an instruction, with the line of the PTX or of the source where it first stands.

        >>> from lanewise.ptx import parse
        >>> module = parse(".version 9.0\\n.target sm_80\\n.entry k() {\\nmma.a %r0;\\n}")
        >>> module.with_line(IllegalInstruction("mma.a: not on sm_70"))
        IllegalInstruction('line 4: mma.a: not on sm_70')
        """
        text = str(error)
        for function in (*self.entries.values(), *self.functions.values()):
            for operation in function.operations:
                if text.startswith(f"{operation.head}:"):
                    if operation.loc is None:
                        return type(error)(f"line {operation.line}: {text}")
                    file, line = self.origin(operation.loc)
                    return type(error)(f"{file}:{line}: {text}")
        return error

    def inlined_through(self, loc: Loc) -> list[tuple[str, int]]:
        """The file and line that a `.loc` names, then those of each call through which it was inlined.

        >>> from lanewise.ptx import parse
        >>> head = '.version 8.0\\n.target sm_80\\n.file 1 "k.cu"\\n.file 2 "mma.hpp"\\n.entry k() {'
        >>> module = parse(head + ".loc 2 91 5, function_name f, inlined_at 1 70 3\\n ret; }")
        >>> module.inlined_through(module["k"].body[0])
        [('mma.hpp', 91), ('k.cu', 70)]
        """
        return [(self.files.get(file, f"file {file}"), line) for file, line, _ in self._inlining(loc)]

    def _inlining(self, loc: Loc) -> list[tuple[int, int, int]]:
        """The place that a `.loc` names, then the call that inlined it, and so on, up to the kernel."""
        if not loc.source_line:
            loc = self._lineless.get(id(loc), loc)
        return self._chains.get(id(loc), [loc.place])

    def source_line(self, line: int) -> str:
        """Return a line of the PTX that it was parsed from, without white space around it."""
        lines = self.text.split("\n", line)
        return lines[line - 1].strip() if 0 < line <= len(lines) else ""

    def __iter__(self) -> Iterator[str]:
        """The names of the kernels, as they are in the PTX."""
        return iter(self.entries)

    def __contains__(self, name: object) -> bool:
        """Whether there is a kernel of a name: that in the PTX, or the demangled one."""
        return name in self.entries or any(demangle(entry) == name for entry in self.entries)

    def __getitem__(self, name: str) -> Entry:
        """Return the kernel of a name: that in the PTX, the demangled one, or the plain one if it is unique.

        A template is instantiated when you ask for it: `module["mm<half, half, float>"]`.
        """
        try:
            if not isinstance(name, str):
                raise LanewiseError(f"an entry is asked for by name, as module['mm'], not by {name!r}")
            if name not in self._found:
                self._found[name] = self._entry(name)
        except LanewiseError as error:
            shorten(error)
            raise
        return self._found[name]

    if not TYPE_CHECKING:  # a checker would take any attribute for one that is there

        @at_caller
        def __getattr__(self, name: str) -> None:
            """Raise an error that says how a kernel of this name is asked for."""
            kernels = (
                () if name.startswith("_") or "items" not in self.__dict__ else matching(name, self.entries)
            )
            hint = f"; module[{name!r}] is the kernel" if kernels else instead_of_attribute(type(self), name)
            raise AttributeError(f"a module of PTX has no attribute {name!r}{hint}", name=name, obj=None)

    def _entry(self, name: str) -> Entry:
        """The entry that a name means: mangled, demangled or plain; an instance of a template is compiled."""
        instances = self.cuda.instances if self.cuda is not None else {}
        matches = [instances[name]] if name in instances else matching(name, self.entries)
        if len(matches) == 1 and matches[0] in self.entries:
            return Entry(self, self.entries[matches[0]])
        if matches:
            raise LanewiseError(f"{name!r} may be any of:\n{listed(matches)}")
        launched = self.cuda.launched_instances(name) if self.cuda is not None else None
        if launched is not None and matching(name, launched.entries):
            return self._instance(launched._entry(name))
        asked = name if "<" in name or self.cuda is None else self.cuda.default_instance(name)
        if "<" in asked and self.cuda is not None:
            asked = re.sub(r">\s*\([^()]*\)\s*$", ">", asked)  # NVRTC takes a name without its parameters
            instance, lowered = self.cuda.instance(asked, self.entries)
            if lowered not in instance.entries:
                raise LanewiseError(f"{name!r} is no kernel: only a __global__ function can be launched")
            return self._instance(Entry(instance, instance.entries[lowered]))
        reason = self.cuda.reason_missing(name) if self.cuda is not None else ""
        if reason:
            raise LanewiseError(reason)
        source = self.cuda.text if self.cuda is not None else ""
        raise LanewiseError(missing_entry(name, self.entries, self.functions, source))

    def _instance(self, entry: Entry) -> Entry:
        """Note the module of a template's instance: its variables are those of this module."""
        root = self.root or self
        if all(member is not entry.module for member in self.family):
            entry.module.root = root
            entry.module.written_globals |= root.written_globals
            root.instances.append(entry.module)
        return entry

    @property
    def family(self) -> list[Module]:
        """The module and the instances of its templates: one source, whose variables they share."""
        root = self.root or self
        return [root, *root.instances]

    def __str__(self) -> str:
        """The PTX of the module: its header, then its items in order, an empty line after each function."""
        target = ", ".join((self.target, *self.target_options))
        lines = [f".version {self.version}", f".target {target}"]
        lines += [f".address_size {self.address_size}", ""] if self.says_address_size else [""]
        for item in self.items:
            lines.append(str(item))
            if isinstance(item, Function):
                lines.append("")
        return "\n".join(lines) + "\n"

    def __repr__(self) -> str:
        shown = ", ".join(demangle(name) for name in list(self.entries)[:_MOST_SHOWN]) or "no entry"
        more = len(self.entries) - _MOST_SHOWN
        others = f" and {more} more" if more > 0 else ""
        compiler = self.cuda.compiler if self.cuda is not None else ""
        return f"<PTX {self.version} for {self.target}{compiler and f' by {compiler}'}: {shown}{others}>"

    def _repr_html_(self) -> str:
        return SHOW_HTML.function(self)


def one_kernel(module: Module, name: str) -> Module:
    """Return a module with one of its kernels, and of functions and variables those that it needs."""
    words = {id(item): set(re.findall(r"[\w$%]+", str(item))) for item in module.items}
    named = {item.name: item for item in module.items if isinstance(item, Function | Variable)}
    kept, waiting = {name}, [name]
    while waiting:
        used = words[id(named[waiting.pop()])] & named.keys()
        new = {name for name in used - kept if name not in module.entries}
        kept |= new
        waiting += sorted(new)
    items = [item for item in module.items if not isinstance(item, Function | Variable) or item.name in kept]
    return replace(module, items=items)
