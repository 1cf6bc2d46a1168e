"""Which function of which room does each task of `lanewise.engines`: the one file that connects the rooms.

Each function here imports the room only when its task is asked for. mypy holds what it returns against the
type that the task declares.
"""

from __future__ import annotations

from collections.abc import Callable, MutableMapping, Sequence
from typing import TYPE_CHECKING, Any

from lanewise.engines import (
    ATOM_INSTRUCTION,
    COMPUTE,
    DEVICE_ADDRESS,
    DRAW_SVG,
    EMIT,
    FRAGMENT_OF_REGISTERS,
    FULL_FRAGMENT,
    GEMM,
    GLOBALS,
    HOST_ARRAY,
    INSTRUCTION_FIDELITY,
    INSTRUCTION_MODEL,
    KERNEL_FIDELITY,
    LAUNCH,
    MOVE,
    NUMBER,
    PRINT_LATEX,
    SASS_LISTING,
    SHOW_HTML,
    THREAD_SLICE,
    ArithmeticModel,
    Compute,
    Emit,
    FidelityNote,
    Launchable,
    SassListing,
)

if TYPE_CHECKING:
    from lanewise.numpy_types import AnyArray

# atoms --------------------------------------------------------------------------------------------------


@ATOM_INSTRUCTION.provided_by
def _atom_instruction() -> Callable[[str], object]:
    from lanewise.atoms.lookup import instruction_of

    return instruction_of


# arith --------------------------------------------------------------------------------------------------


@COMPUTE.provided_by
def _compute() -> Compute:
    from lanewise.arith import compute

    return compute


@GEMM.provided_by
def _gemm() -> Compute:
    from lanewise.arith import gemm

    return gemm


@MOVE.provided_by
def _move() -> Callable[..., AnyArray]:
    from lanewise.arith.moves import move

    return move


@INSTRUCTION_FIDELITY.provided_by
def _instruction_fidelity() -> Callable[[Any, str], str]:
    from lanewise.arith import fidelity

    return fidelity


@INSTRUCTION_MODEL.provided_by
def _instruction_model() -> Callable[[Any, str], ArithmeticModel]:
    from lanewise.arith.on_arrays import required_model

    return required_model


# draw ---------------------------------------------------------------------------------------------------


@DRAW_SVG.provided_by
def _draw_svg() -> Callable[[object], str]:
    from lanewise.draw import svg

    return svg


@PRINT_LATEX.provided_by
def _print_latex() -> Callable[[object], None]:
    from lanewise.draw import print_latex

    return print_latex


# machine and launch -------------------------------------------------------------------------------------


@KERNEL_FIDELITY.provided_by
def _kernel_fidelity() -> Callable[[Any, str | None], Sequence[FidelityNote]]:
    from lanewise.machine.analysis.fidelity import of_entry

    return of_entry


@LAUNCH.provided_by
def _launch() -> Callable[[Any, Any], Launchable]:
    from lanewise.launch import launch

    return launch


@DEVICE_ADDRESS.provided_by
def _device_address() -> Callable[[Any, str], int]:
    from lanewise.launch import device_address

    return device_address


@GLOBALS.provided_by
def _globals() -> Callable[[Any], MutableMapping[str, Any]]:
    from lanewise.module_globals import Globals

    return Globals


@HOST_ARRAY.provided_by
def _host_array() -> Callable[[object], object]:
    from lanewise.ptx.host_tensors import host_array

    return host_array


@SASS_LISTING.provided_by
def _sass_listing() -> SassListing:
    from lanewise.ptx.sass_listing import listing

    return listing


# lang ---------------------------------------------------------------------------------------------------


@SHOW_HTML.provided_by
def _show_html() -> Callable[[object], str]:
    from lanewise.lang.frontend.kernel_html import shown

    return shown


@EMIT.provided_by
def _emit() -> Emit:
    from lanewise.lang.matrix.emit import emit

    return emit


@FULL_FRAGMENT.provided_by
def _full_fragment() -> Callable[[Any, object], object]:
    from lanewise.lang.matrix.fragment import full_fragment

    return full_fragment


@FRAGMENT_OF_REGISTERS.provided_by
def _fragment_of_registers() -> Callable[[Any, object], object]:
    from lanewise.lang.matrix.fragment import fragment_of_registers

    return fragment_of_registers


@THREAD_SLICE.provided_by
def _thread_slice() -> Callable[[Any, Any], object]:
    from lanewise.lang.tiles.partition import thread_slice

    return thread_slice


@NUMBER.provided_by
def _number() -> Callable[[Any, object], object]:
    from lanewise.lang.trace.convert import dtype_call

    return dtype_call
