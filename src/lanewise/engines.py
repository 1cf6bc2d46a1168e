"""What a room asks of rooms that it does not know: one table of tasks, each with the type of its function.

Instructions compute, emit and draw themselves, although `isa/` imports none of the rooms that do this.
`lanewise/providers.py` says which function does a task; it is loaded when first asked for.

The object that a task is about (an instruction, an operand, a kernel) is of a room further down, whose types
cannot be named here: it is Any, so that the function's own type fits. Operands and options, which the
function itself checks, are an `object`. What a function returns is typed; a value inside a kernel, which is
handed on as it is, is an `object`.
"""

from __future__ import annotations

from collections.abc import Callable, MutableMapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypedDict, TypeVar, Unpack

from lanewise.errors import LanewiseError
from lanewise.hints import Suggests

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from lanewise.numpy_types import AnyArray

Function = TypeVar("Function")


class EntryPoint(Generic[Function]):
    """A function that another room provides for a task, and how to load it.

    >>> greet: EntryPoint[Callable[[str], str]] = EntryPoint("greet")
    >>> greet.function("you")
    Traceback (most recent call last):
    lanewise.errors.LanewiseError: nothing that is loaded can greet: `import lanewise` loads it
    >>> load = greet.provided_by(lambda: "hello {}".format)
    >>> greet.function("you")
    'hello you'
    """

    def __init__(self, task: str) -> None:
        self.task = task
        self._load: Callable[[], Function] | None = None

    def provided_by(self, load: Callable[[], Function]) -> Callable[[], Function]:
        """Register what imports the function and returns it; a decorator, which returns `load` unchanged."""
        self._load = load
        return load

    @property
    def function(self) -> Function:
        """The function that does the task, loaded now if it was not before."""
        if self._load is None:
            raise LanewiseError(f"nothing that is loaded can {self.task}: `import lanewise` loads it")
        return self._load()


# types of the functions ---------------------------------------------------------------------------------


class ProductOptions(TypedDict, total=False):
    """What an instruction on arrays takes beside A, B and C, by name.

    `metadata` says which position in its group each element of a sparse A has. `scale_a` and `scale_b` are
    the factors of block-scaled operands. `satfinite` is WMMA's and that of integers: infinities become the
    largest numbers, NaN becomes 0. `negate_a` and `negate_b` are those of wgmma and tcgen05.mma.
    """

    metadata: object
    scale_a: object
    scale_b: object
    satfinite: bool
    negate_a: bool
    negate_b: bool


class Compute(Protocol):
    """Computes an instruction on arrays and returns D, with the bits that the arch returns."""

    def __call__(
        self,
        instruction: Any,
        a: object,
        b: object,
        c: object = None,
        /,
        *,
        arch: str,
        **options: Unpack[ProductOptions],
    ) -> AnyArray: ...


class Emit(Protocol):
    """Emits an instruction into the kernel that is being traced; returns what the kernel gets for it."""

    def __call__(self, instruction: Any, /, *operands: Any, **options: Any) -> object: ...


class ArithmeticModel(Protocol):
    """How an arch adds products up; as text it says block length, fraction bits and rounding."""

    @property
    def scheme(self) -> object:
        """The parameters of the sum: `length`, `fraction`, `rounding`, … of a fused sum."""

    @property
    def fidelity(self) -> str:
        """How far the model can be trusted, in words."""

    @property
    def source(self) -> str:
        """Where the model is from: measurements, or a publication."""


class FidelityNote(Protocol):
    """An instruction of a kernel whose bits may differ on a GPU: its line and text, why, and a sentence."""

    @property
    def line(self) -> int:
        """The line of the instruction in the PTX."""

    @property
    def text(self) -> str:
        """The instruction as it is written."""

    @property
    def kind(self) -> str:
        """The reason in one word."""

    @property
    def message(self) -> str:
        """The reason in a sentence."""


class Launchable(Protocol):
    """A kernel with its grid, block and shared memory: calling it with its arguments launches it."""

    def __call__(
        self,
        *arguments: object,
        stream: object = None,
        arch: str | None = None,
        steps: int | None = None,
        progress: Callable[[int, int], None] | None = None,
        executor: Executor | None = None,
    ) -> None: ...


class SassListing(Protocol):
    """Returns the machine code of a module, on request with lines of its source and with encodings."""

    def __call__(
        self, module: Any, arch: str | None = None, *, lines: bool = False, encodings: bool = False
    ) -> str: ...


# the table of tasks -------------------------------------------------------------------------------------

#: A tensor in host memory as a NumPy array of the same memory; anything else as it is.
HOST_ARRAY: EntryPoint[Callable[[object], object]] = EntryPoint("read tensors of other libraries")
#: The instruction that a name of CUTLASS stands for; None for a plain copy.
ATOM_INSTRUCTION: EntryPoint[Callable[[str], object]] = EntryPoint("look up names of CUTLASS")
#: D = A·B + C of an instruction on arrays, once, and repeated along K for whole matrices.
COMPUTE: EntryPoint[Compute] = EntryPoint("compute")
GEMM: EntryPoint[Compute] = EntryPoint("gemm")
#: What an instruction that moves a matrix does with arrays: ldmatrix, stmatrix, movmatrix.
MOVE: EntryPoint[Callable[..., AnyArray]] = EntryPoint("move")
#: How far an instruction's computed bits can be trusted on an arch, in words.
INSTRUCTION_FIDELITY: EntryPoint[Callable[[Any, str], str]] = EntryPoint("fidelity")
#: The model of an instruction's arithmetic on an arch.
INSTRUCTION_MODEL: EntryPoint[Callable[[Any, str], ArithmeticModel]] = EntryPoint("model arithmetic")
#: Where a GPU may give other bits for a kernel, for an arch or the kernel's own.
KERNEL_FIDELITY: EntryPoint[Callable[[Any, str | None], Sequence[FidelityNote]]] = EntryPoint(
    "kernel fidelity"
)
#: An object's picture as SVG; and printed as LaTeX.
DRAW_SVG: EntryPoint[Callable[[object], str]] = EntryPoint("draw")
PRINT_LATEX: EntryPoint[Callable[[object], None]] = EntryPoint("print_latex")
#: The machine code of a module for an arch, as text.
SASS_LISTING: EntryPoint[SassListing] = EntryPoint("list machine code")
#: A kernel or a module as HTML, as notebooks show it.
SHOW_HTML: EntryPoint[Callable[[object], str]] = EntryPoint("show kernels")
#: A kernel with what stands in `kernel[grid, block]`.
LAUNCH: EntryPoint[Callable[[Any, object], Launchable]] = EntryPoint("launch")
#: The variables of a module by name, read and written where its kernels run.
GLOBALS: EntryPoint[Callable[[Any], MutableMapping[str, Any]]] = EntryPoint("reach a module's variables")
#: The device address of an array, on the CPU machine or on its GPU; messages name who asked for it.
DEVICE_ADDRESS: EntryPoint[Callable[[object, str], int]] = EntryPoint("give an array a device address")
#: Inside a kernel: an instruction emitted.
EMIT: EntryPoint[Emit] = EntryPoint("emit")
#: Inside a kernel: a fragment of an operand, with one value in every element, or made of registers.
FULL_FRAGMENT: EntryPoint[Callable[[Any, object], object]] = EntryPoint("fragment")
FRAGMENT_OF_REGISTERS: EntryPoint[Callable[[Any, object], object]] = EntryPoint("registers")
#: Inside a kernel: the slice of a tiled MMA or copy that a traced thread index takes.
THREAD_SLICE: EntryPoint[Callable[[Any, object], object]] = EntryPoint("slice tiles")
#: Inside a kernel: a number, or a traced value converted, in a format.
NUMBER: EntryPoint[Callable[[Any, object], object]] = EntryPoint("number")
#: Multiplies in a graph of torch.compile.
PRODUCT_IN_GRAPH: EntryPoint[Callable[..., object]] = EntryPoint("multiply in a graph of torch.compile")


class Drawn(Suggests):
    """An object with a picture: a notebook shows it, and it prints itself as LaTeX."""

    __slots__ = ()

    def _repr_svg_(self) -> str | None:
        try:
            return DRAW_SVG.function(self)
        except LanewiseError:
            return None  # too large a picture, or none: the notebook falls back to the text

    def print_latex(self) -> None:
        """Print the picture as a LaTeX document."""
        PRINT_LATEX.function(self)
