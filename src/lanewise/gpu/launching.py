"""A launch on a GPU: arguments held against the parameters, the stream, and a plan for the next time."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from lanewise.errors import LanewiseError
from lanewise.gpu.arrays import ArrayLocation, library_of, locate
from lanewise.gpu.device import Context, context
from lanewise.gpu.loading import Loaded, loaded
from lanewise.gpu.plan import POINTER, TENSOR_MAP, Plan, filled_record, number_format, start
from lanewise.gpu.streams import stream_handle, wait_for
from lanewise.gpu.textures import DeviceImage, device_image, fetches_integers
from lanewise.isa import find_arch
from lanewise.ptx.arguments import (
    ArrayArgument,
    ParameterTypes,
    encode,
    require_alignment,
    require_pointer,
    titled,
)
from lanewise.ptx.textures import ImageObject, Surface, require_handle

if TYPE_CHECKING:
    from lanewise.ptx import Entry, Shape, Variable


def launch(
    entry: Entry, shape: Shape, arguments: tuple[object, ...], stream: object = None, arch: str | None = None
) -> Plan | None:
    """Launch a kernel on the device where its arrays lie; the plan, if there is one, does the next launch.

    `stream` is any library's stream; without one, torch's or CuPy's current stream if the arrays are theirs,
    else the legacy default stream. `arch` must be the device's.
    """
    titles = list(titled(entry.function, arguments))
    handle = None if stream is None else stream_handle(stream)
    locations = [
        locate(_memory_of(value), handle or 0)
        if not variable.dims or isinstance(value, ArrayArgument)
        else None
        for _, variable, value in titles
    ]
    there = _device(titles, locations, handle)
    _require_arch(arch, there)
    if handle is None:
        handle = _current_stream(tuple(map(_memory_of, arguments)), there.ordinal)
    kernel = loaded(entry, there)
    kernel.fit(shape)
    types = ParameterTypes(entry.function, entry.module.cuda.text if entry.module.cuda is not None else "")
    images = _images(titles, locations, there, entry)
    raw = [
        images[title].handle.to_bytes(8, "little")
        if title in images
        else argument_bytes(title, variable, value, where, types, there)
        for (title, variable, value), where in zip(titles, locations, strict=True)
    ]
    record = filled_record(kernel, shape, raw)
    for stream_of_array in {where.stream for where in locations if where is not None and where.stream}:
        wait_for(there, handle, stream_of_array)
    struct.pack_into("<Q", record.buffer, record.stream, handle)
    if images:
        with there.current():
            for image in images.values():
                image.fill(handle)
            start(kernel, record)
            for title, _, value in titles:
                if isinstance(value, Surface):
                    images[title].take(handle)
        return None
    start(kernel, record)
    return _plan(kernel, shape, titles, locations)


def early_arch(arguments: tuple[object, ...]) -> str | None:
    """Return the arch of the GPU on which arrays lie, if it is older than sm_80."""
    for value in map(_memory_of, arguments):
        library = library_of(value)
        where = locate(value, 0) if library is not None else None
        if where is not None and where.on_gpu:
            return context(where.ordinal or 0).device.early_arch
    return context(0).device.early_arch


def _memory_of(value: object) -> object:
    """The array of a texture, surface or tensor map; any other argument as it is."""
    return value.array if isinstance(value, ArrayArgument) else value


def _images(
    titles: list[tuple[str, Variable, object]],
    locations: list[ArrayLocation | None],
    there: Context,
    entry: Entry,
) -> dict[str, DeviceImage]:
    """The objects of the textures and surfaces among the arguments, by the arguments' titles."""
    images: dict[str, DeviceImage] = {}
    for (title, variable, value), where in zip(titles, locations, strict=True):
        if isinstance(value, ImageObject) and where is not None:
            require_handle(title, variable, value)
            fetched = fetches_integers(entry.function.body)
            with there.current():
                images[title] = device_image(title, value, there, where.address, fetched)
    return images


def argument_bytes(
    title: str,
    variable: Variable,
    value: object,
    where: ArrayLocation | None,
    types: ParameterTypes,
    there: Context,
) -> bytes:
    """Return an argument as the bytes of its parameter: a number, an address or a tensor map."""
    if where is None:
        return encode(title, value, variable, types)
    if isinstance(value, ArrayArgument):
        from lanewise.gpu.tensor_maps import tensor_map_bytes  # few kernels take one
        from lanewise.ptx.tensor_maps import TensorMap

        assert isinstance(value, TensorMap)
        return tensor_map_bytes(title, variable, value, there, where.address)
    require_pointer(title, variable)
    if not where.in_one_piece:
        raise LanewiseError(
            f"argument {title}: an array must be contiguous, in C's or Fortran's order, and this one skips "
            "memory between elements; .contiguous() (torch) or ascontiguousarray (CuPy) makes a copy that is"
        )
    require_alignment(title, variable, where.address)
    return where.address.to_bytes(8, "little")


def _device(
    titles: list[tuple[str, Variable, object]], locations: list[ArrayLocation | None], handle: int | None
) -> Context:
    """The context of the device on which all arrays lie."""
    arrays = [
        (title, where) for (title, _, _), where in zip(titles, locations, strict=True) if where is not None
    ]
    places = "; ".join(f"argument {title} is {where}" for title, where in arrays)
    if any(not where.on_gpu for _, where in arrays):
        raise LanewiseError(
            f"{places}: a launch takes all its arrays on one GPU, or all as NumPy arrays on the CPU"
        )
    ordinals = {where.ordinal for _, where in arrays if where.ordinal is not None}
    if len(ordinals) > 1:
        raise LanewiseError(f"{places}: a launch takes all its arrays on one device")
    if ordinals:
        return context(ordinals.pop())
    return _device_of_stream(handle or 0)


def _device_of_stream(handle: int) -> Context:
    """The device of a stream, where no array tells: the first, or the one whose context the stream has."""
    first = context(0)
    if first.alone or handle <= 2:
        return first
    with first.current():
        wanted = first.driver.handle("cuStreamGetCtx", handle)
    count = first.driver.number("cuDeviceGetCount")
    return next((candidate for candidate in map(context, range(count)) if candidate.handle == wanted), first)


def _require_arch(arch: str | None, there: Context) -> None:
    if arch is not None and find_arch(arch).rstrip("af") != there.device.arch:
        raise LanewiseError(
            f"arch={arch!r} says which GPU the CPU machine computes like; these arrays lie on "
            f"{there.device.name}, which is {there.device.arch}"
        )


def _current_stream(arguments: tuple[object, ...], ordinal: int) -> int:
    libraries = {library.name: library for library in map(library_of, arguments) if library is not None}
    for name in ("torch", "cupy"):
        if name in libraries:
            return libraries[name].current_stream(ordinal)
    return 0


def _plan(
    kernel: Loaded,
    shape: Shape,
    titles: list[tuple[str, Variable, object]],
    locations: list[ArrayLocation | None],
) -> Plan | None:
    """A plan for arguments of these types, if they are of one library, the others plain numbers."""
    libraries = {
        library_of(_memory_of(value))
        for (_, _, value), where in zip(titles, locations, strict=True)
        if where is not None
    }
    library = libraries.pop() if len(libraries) == 1 else None
    if library is None:
        return None
    aligns = [variable.pointer.align for _, variable, _ in titles if variable.pointer is not None]
    formats = []
    for (_, variable, value), where in zip(titles, locations, strict=True):
        if isinstance(value, ArrayArgument):
            code: str | None = TENSOR_MAP if variable.dims else None
        else:
            code = POINTER if where is not None else number_format(variable, value)
        if code is None:
            return None
        formats.append(code)
    types = tuple(type(value) for _, _, value in titles)
    array_types = tuple(
        None if where is None else type(_memory_of(value))
        for (_, _, value), where in zip(titles, locations, strict=True)
    )
    align = max(aligns, default=1) or 1
    return Plan(kernel, shape, library, types, formats, align, array_types=array_types)
