"""The driver's library for frameworks that call it from C, and lanewise's own launches on "cuda" arrays."""

from __future__ import annotations

from typing import Any

from lanewise.errors import LanewiseError
from lanewise.virtual_gpu.frameworks.patches import FrameworkState, Patches
from lanewise.virtual_gpu.library.driver_library import DriverLibrary


def install(gpu: FrameworkState, patches: Patches) -> None:
    """Connect the library to the virtual GPU, until the patches are taken back."""
    patches.callback(DriverLibrary(gpu.driver).close)


def install_own_kernels(gpu: FrameworkState, patches: Patches) -> None:
    """Let lanewise's own kernels launch on the virtual GPU: their PTX goes to the driver as it is.

    Contexts and modules are those of one GPU, and each launch takes the long way: a warm one would pass
    addresses that nobody asked torch for, and the virtual GPU would not know their memory.
    """
    from lanewise.gpu import assemble, launching, loading
    from lanewise.launch import Configured

    install(gpu, patches)

    def as_ptx(own: Any, module: Any, context: Any, kernel: str = "") -> bytes:
        return assemble.with_visible_variables(module).encode() + b"\0"

    patches.wrap(loading, "cubin", as_ptx)
    patches.set(launching, "_plan", lambda *_: None)
    patches.set(Configured, "warm", lambda *_: False)
    loading.forget_contexts()
    patches.callback(loading.forget_contexts)


def install_own_records(gpu: FrameworkState, patches: Patches) -> None:
    """Neither read nor keep kernels and launches of `lw.matmul` on disk: they hold machine code of a GPU."""
    from lanewise.gpu import recorded

    for name in ("kept", "keep", "known", "keep_kernel"):
        patches.set(recorded, name, lambda *_: None)


def install_products(gpu: FrameworkState, patches: Patches) -> None:
    """Let no call of `lw.matmul` and its like be repeated from another GPU, nor made by machine code, which
    would pass addresses that nobody asked torch for."""
    from lanewise.linalg import matrix_in_two_arrays
    from lanewise.linalg.launch import known_calls, prepare, workspaces

    def forget() -> None:
        known_calls.forget()
        prepare.forget_prepared()
        workspaces.forget_counting()
        matrix_in_two_arrays.forget_copies()

    patches.set(known_calls, "_machine_code", lambda *_: None)
    forget()
    patches.callback(forget)


def install_tuning(gpu: FrameworkState, patches: Patches) -> None:
    """Refuse `lw.tune`: a virtual GPU takes the times of a CPU."""
    from lanewise.linalg import tune

    def refuse(*_: object) -> None:
        raise LanewiseError(
            f"lw.tune measures times, and those of a virtual {gpu.device.name} are times of the CPU: tune on "
            "the GPU itself"
        )

    patches.set(tune, "plans_to_measure", refuse)
