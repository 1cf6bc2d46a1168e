"""`@lw.kernel`: Python functions traced to PTX.

A `Kernel` keeps the modules that it was traced to; how one is launched is in `launching.py`.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import update_wrapper
from types import FunctionType
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, overload

from lanewise.engines import SHOW_HTML
from lanewise.hints import called, instead_of_attribute
from lanewise.isa import find_arch
from lanewise.lang.frontend.launching import BlockNeeds, ConfiguredKernel
from lanewise.lang.frontend.parameters import (
    Parameter,
    note_bytes,
    read_signature,
    singles,
    traced_argument,
)
from lanewise.lang.frontend.source import RewrittenFunction, read_annotations
from lanewise.lang.frontend.structs import classes_in
from lanewise.lang.trace.builder import Builder, current, tracing, use_builder
from lanewise.lang.trace.errors import KernelError
from lanewise.lang.trace.ptx_text import Writer
from lanewise.lang.versions.constant_keys import constants_key
from lanewise.lang.versions.source_text import SourceText
from lanewise.lang.versions.versions import Version, Versions
from lanewise.recently_used import RecentlyUsed
from lanewise.tracebacks import short_traceback, shorten

if TYPE_CHECKING:
    from lanewise.isa.occupancy import Occupancy
    from lanewise.ptx import Cubin, Module, Resources
    from lanewise.ptx.model.source_names import SourceNames

#: Configurations of a kernel that are remembered.
_MOST_CONFIGURED = 1024


def _is_of_integers(configuration: object) -> bool:
    """Return whether a grid and block are integers and tuples of them alone."""
    if type(configuration) is tuple:
        return all(map(_is_of_integers, configuration))
    return type(configuration) is int


#: Modules that a kernel keeps: it is traced once for each arch and values of its Constexpr parameters.
_MOST_MODULES = 256
#: What launches a kernel in other libraries.
_LAUNCHES_ELSEWHERE = ("launch", "run", "forall", "configure", "__call__")
#: What @lw.kernel(…) takes.
_OPTIONS = ("max_threads", "min_blocks", "max_registers", "cluster")
#: Blocks of a cluster that every GPU with clusters runs.
_LARGEST_CLUSTER = 8


class Kernel:
    """A kernel: `kernel[grid, block](…)` launches it, `kernel.ptx(arch)` shows what it was traced to."""

    def __init__(
        self, function: Callable[..., Any], options: dict[str, Any], around: Mapping[str, Any] | None = None
    ) -> None:
        assert isinstance(function, FunctionType)
        self.function, self.options = function, options
        #: The source and the types are read here, where the function is defined.
        self.source = SourceText(function)
        self._annotations = read_annotations(function, around or {})
        self._rewritten: RewrittenFunction | None = None
        self._signature: list[Parameter] | None = None
        self._parameters: list[Parameter] = []
        #: The versions that it was traced to, by the arch and the values of its Constexpr parameters.
        self._versions: RecentlyUsed[Any, Versions[BlockNeeds]] = RecentlyUsed(_MOST_MODULES)
        self._configured: dict[Any, ConfiguredKernel] = {}
        #: The name of what is compiled in, by which launches find its machine code without its source: that
        #: of a kernel which depends on nothing else.
        self.kept_as = ""
        update_wrapper(self, function)

    def __setattr__(self, name: str, value: object) -> None:
        if name in ("__code__", "__defaults__", "__kwdefaults__"):
            raise KernelError(
                f"{name} of the kernel {self.name} cannot be set: define the function anew, with @lw.kernel"
            )
        super().__setattr__(name, value)

    INSTEAD: ClassVar = {
        **dict.fromkeys(
            ("src", "source", "code", "fn", "func"), "kernel.function is the Python, kernel.ptx() the PTX"
        ),
        "asm": "kernel.ptx() and kernel.sass() return its code",
        **dict.fromkeys(
            ("to", "cuda", "cpu", "compile"),
            "it is compiled when it is launched, and runs where its arrays are",
        ),
    }

    if not TYPE_CHECKING:  # a type checker has to know the attributes

        def __getattr__(self, name: str) -> NoReturn:
            of_kernel = getattr(self.__dict__.get("function"), "__name__", "")
            mend = f"; {of_kernel}[grid, block](…) launches it"
            if name not in _LAUNCHES_ELSEWHERE:
                mend = instead_of_attribute(type(self), name)
            raise AttributeError(
                f"the kernel {of_kernel} has no attribute {name!r}{mend}", name=name, obj=None
            )

    @property
    def name(self) -> str:
        """The name of the kernel, in Python and in the PTX."""
        return str(self.function.__name__)

    @property
    def rewritten(self) -> RewrittenFunction:
        """The function with its control flow rewritten, when it is first needed."""
        if self.source.code is not self.function.__code__:  # another one was put into its place
            self.source, self._rewritten, self._signature = SourceText(self.function), None, None
        if self._rewritten is None:
            self._rewritten = RewrittenFunction(self.source, is_kernel=True, annotations=self._annotations)
        return self._rewritten

    @property
    def signature(self) -> list[Parameter]:
        """The parameters of the kernel, in order, with structs among them."""
        if self._signature is None:
            self._signature = read_signature(self.rewritten)
            self._parameters = singles(self._signature)
        return self._signature

    @property
    def parameters(self) -> list[Parameter]:
        """The parameters of the kernel, in order, with the fields of structs in place of the structs."""
        return self._parameters if self.signature else []

    # tracing --------------------------------------------------------------------------------------------

    @short_traceback
    def module(self, arch: str | None = None, **constants: object) -> Module:
        """Return the traced module, for an arch and the values of the Constexpr parameters."""
        return self.version(arch, constants).module

    def version(self, arch: str | None, constants: dict[str, Any]) -> Version[BlockNeeds]:
        """Return what the kernel is traced to, for an arch, Constexpr values, and what it reads of Python."""
        name = None if arch is None else find_arch(arch)
        known = self._constants(constants)
        unhashable = [name for name, value in known.items() if not _is_hashable(value)]
        if unhashable:
            raise KernelError(
                f"{self.name}: the value of a Constexpr must be hashable, a tuple and not a list; that of "
                f"{', '.join(unhashable)} is not"
            )
        key = (name, constants_key(known))
        versions = self._versions.get(key)
        if versions is None:
            versions = Versions()
        version = versions.current(lambda: self._traced(name, known))
        self._versions.put(key, versions)
        return version

    def _constants(self, given: dict[str, object]) -> dict[str, object]:
        """Return the values of the Constexpr parameters, from those that are given and the defaults."""
        known = {}
        names = [parameter.name for parameter in self.parameters if parameter.is_constexpr]
        for name in given:
            if name not in names:
                raise KernelError(
                    f"{self.name} has no Constexpr parameter {name}; it has {', '.join(names) or 'none'}"
                )
        for parameter in self.parameters:
            if parameter.is_constexpr:
                value = given.get(parameter.name, parameter.default)
                if value is inspect.Parameter.empty:
                    raise KernelError(
                        f"{self.name} needs a value for the Constexpr {parameter.name}: {parameter.name}=…"
                    )
                known[parameter.name] = value
        return known

    def _traced(
        self, arch: str | None, constants: dict[str, object]
    ) -> tuple[Module, BlockNeeds, tuple[object, ...]]:
        """Trace the kernel anew, and parse what it was traced to."""
        from lanewise.ptx import parse

        text, names, builder = self._trace(arch, constants)
        module = parse(text)
        module.names = names
        classes = dict.fromkeys(made for parameter in self.signature for made in classes_in(parameter))
        roots = (self.function, *constants.values(), *builder.device_functions.values(), *classes)
        return module, BlockNeeds.of(builder), roots

    def _trace(self, arch: str | None, constants: dict[str, object]) -> tuple[str, SourceNames, Builder]:
        """Trace the kernel anew and return its PTX, the names of its variables in it, and the builder."""
        from lanewise.lang.frontend.source_names import (  # it loads the model of PTX
            captured_numbers,
            source_names,
        )

        rewritten = self.rewritten
        with use_builder(Builder(arch)) as builder:
            builder.sources[rewritten.file] = rewritten.lines
            builder.location = rewritten.location
            arguments: dict[str, Any] = {}
            declared: list[str] = []
            for parameter in self.signature:
                if parameter.is_constexpr:
                    arguments[parameter.name] = constants[parameter.name]
                else:
                    arguments[parameter.name] = traced_argument(builder, parameter, declared)
            rewritten.call(arguments)
            parameters = [parameter for parameter in self.parameters if not parameter.is_constexpr]
            names = [parameter.ptx_name for parameter in parameters]
            note_bytes(builder, parameters)
            self._require_register_bound(builder)
            if self.options.get("cluster"):
                builder.need("cluster=", 90, "7.8")
            writer = Writer(builder, self.name, declared, self._limits())
            text = writer.text(names)
            for name, value in {**captured_numbers(self.function), **constants}.items():
                builder.bound.setdefault(name, []).append(value)
            named = source_names(builder.bound, writer.by_hint, builder.computed_addresses)
            return text, named, builder

    def _limits(self) -> list[str]:
        """Return the directives of the PTX that the options of @lw.kernel ask for."""
        directives = []
        if threads := self.options.get("max_threads"):
            directives.append(f".maxntid {threads}, 1, 1")
        if blocks := self.options.get("min_blocks"):
            directives.append(f".minnctapersm {blocks}")
        if registers := self.options.get("max_registers"):
            directives.append(f".maxnreg {registers}")
        if cluster := self.options.get("cluster"):
            directives.append(f".reqnctapercluster {', '.join(map(str, cluster))}")
        return directives

    def _require_register_bound(self, builder: Builder) -> None:
        """Raise an error for setmaxnreg in a kernel whose registers at the start are not bounded."""
        bounded = self.options.get("max_registers") or (
            self.options.get("max_threads") and self.options.get("min_blocks")
        )
        if builder.changes_registers is not None and not bounded:
            raise builder.error(
                "setmaxnreg needs to know how many registers a thread begins with: write "
                "@lw.kernel(max_threads=384, min_blocks=1), or max_registers=168",
                builder.changes_registers,
            )

    # PTX and machine code -------------------------------------------------------------------------------

    @called
    @short_traceback
    def ptx(self, arch: str | None = None, **constants: object) -> str:
        """Return the PTX, for an arch and the values of the Constexpr parameters."""
        return self.module(arch, **constants).text

    @short_traceback
    def cubin(self, arch: str | None = None, **constants: object) -> Cubin:
        """Return the machine code that ptxas makes of the PTX."""
        from lanewise.ptx import ptxas

        return ptxas(self.module(arch, **constants), arch, options=["--generate-line-info"])

    @called
    @short_traceback
    def sass(
        self, arch: str | None = None, *, lines: bool = False, encodings: bool = False, **constants: object
    ) -> str:
        """Return the machine code as text; with `lines`, with the Python lines that it comes from.

        With `encodings` the bits of each instruction stand beside it.
        """
        from lanewise.ptx.sass_listing import listing_of

        return listing_of(self.cubin(arch, **constants), {}, lines=lines, encodings=encodings)

    @short_traceback
    def resources(self, arch: str | None = None, **constants: object) -> Resources:
        """Return the registers, spills and shared bytes that ptxas counts."""
        return self.cubin(arch, **constants).resources[self.name]

    @short_traceback
    def occupancy(
        self,
        arch: str | None = None,
        *,
        block: int | Sequence[int] | None = None,
        shared_bytes: int = 0,
        **constants: object,
    ) -> Occupancy:
        """Return how many blocks and warps a multiprocessor of an arch holds at a time, and what bounds them.

        `block` is the number of threads of a block; by default the one with which most warps are resident.
        `shared_bytes` is its dynamic shared memory; by default as much as the kernel's arrays take.
        """
        from lanewise.ptx.model.module import occupancy_of

        version = self.version(arch, constants)
        entry = version.module.entries[self.name]
        shared_bytes = shared_bytes or version.needs.shared_bytes
        return occupancy_of(self.resources(arch, **constants), entry, block, shared_bytes)

    # launching ------------------------------------------------------------------------------------------

    def __getitem__(self, configuration: object) -> ConfiguredKernel:
        try:
            return self._configured[configuration]
        except (KeyError, TypeError):  # TypeError: a list in it, which cannot be looked up
            configured = ConfiguredKernel(self, configuration)
        if len(self._configured) >= _MOST_CONFIGURED:
            self._configured.clear()
        if _is_of_integers(configuration):  # Python finds 2.0, which is refused, where 2 is looked up
            self._configured[configuration] = configured
        return configured

    @short_traceback
    def __iter__(self) -> NoReturn:
        raise KernelError(f"a kernel is launched, {self.name}[grid, block](…), and not iterated over")

    @short_traceback
    def __call__(self, *_: object, **__: object) -> Any:
        if tracing():
            raise current().error(
                f"{self.name} is a kernel, and kernels do not call each other: use an @lw.device function"
            )
        raise KernelError(f"a kernel is launched with its grid and block: {self.name}[grid, block](…)")

    def __repr__(self) -> str:
        return f"<kernel {self.name}>"

    def _repr_html_(self) -> str:
        return SHOW_HTML.function(self)


def _is_hashable(value: object) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True


@overload
def kernel(function: Callable[..., Any]) -> Kernel: ...
@overload
def kernel(
    *,
    max_threads: int | None = None,
    min_blocks: int | None = None,
    max_registers: int | None = None,
    cluster: int | tuple[int, ...] | None = None,
) -> Callable[[Callable[..., Any]], Kernel]: ...
def kernel(function: Callable[..., Any] | None = None, **options: object) -> Any:
    """Make a function a kernel; its loops and branches on traced values become those of the kernel.

    `max_threads` a block, `min_blocks` on a multiprocessor and `max_registers` a thread guide ptxas, as
    CUDA's `__launch_bounds__` and `__maxnreg__` do; `cluster` is how many blocks run side by side, as
    `__cluster_dims__` says it: 2, or (2, 1).
    """
    if function is None:
        return short_traceback(lambda given: _kernel(given, options, sys._getframe(2).f_locals))
    try:
        return _kernel(function, options, sys._getframe(1).f_locals)
    except KernelError as error:
        shorten(error)
        raise


def _kernel(function: object, options: dict[str, object], around: Mapping[str, object]) -> Kernel:
    """Return the kernel of a function, its options checked.

    `around` are the local variables at its definition.
    """
    for name, value in options.items():
        if name not in _OPTIONS:
            raise KernelError(f"@lw.kernel takes {', '.join(_OPTIONS)}; not {name}")
        if name == "cluster":
            options = options | {"cluster": _cluster_shape(value)}
            continue
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
            raise KernelError(f"{name}= of @lw.kernel is an integer of at least 1, not {value!r}")
    if not inspect.isfunction(function):
        raise KernelError(f"@lw.kernel goes on a function defined with `def`, not on {function!r}")
    return Kernel(function, options, around)


def _cluster_shape(cluster: object) -> tuple[int, int, int] | None:
    """Return the blocks of a cluster along x, y and z; an error if no GPU has such."""
    if cluster is None:
        return None
    entries = tuple(cluster) if isinstance(cluster, tuple | list) else (cluster,)
    integers = all(isinstance(entry, int) and not isinstance(entry, bool) and entry >= 1 for entry in entries)
    if not integers or not 1 <= len(entries) <= 3:
        raise KernelError(
            f"cluster= of @lw.kernel is an integer or up to three, as in (2, 1); not {cluster!r}"
        )
    x, y, z = (*entries, 1, 1)[:3]
    if x * y * z > _LARGEST_CLUSTER:
        raise KernelError(
            f"cluster={cluster!r} of @lw.kernel: {x * y * z} blocks; a cluster has at most {_LARGEST_CLUSTER}"
        )
    return x, y, z
