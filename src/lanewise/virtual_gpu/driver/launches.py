"""Entry points about modules, functions, launches and tensor maps."""

import ctypes
from collections.abc import Iterable, Sequence
from math import prod
from typing import Annotated, Any, TypeVar

from lanewise.errors import LanewiseError
from lanewise.isa.archs import arch_number
from lanewise.isa.multiprocessor import STATIC_SHARED_BYTES, WARP
from lanewise.isa.tensor_map import LEAST_AXES, Im2colTensor, MappedTensor, TiledTensor
from lanewise.isa.tensor_map_fields import (
    EVERY_TYPE,
    FIELD,
    FILLS,
    INTERLEAVES,
    L2_PROMOTIONS,
    MAP_BYTES,
    MOST_AXES,
    OTHER_AXES,
    SWIZZLE_NUMBERS,
)
from lanewise.jit.host_memory import address
from lanewise.launch import Configured
from lanewise.machine.errors import Deadlock, KernelFault
from lanewise.machine.runtime.device_memory import module_memory, variable_bytes
from lanewise.ptx import Shape
from lanewise.ptx.model.names import plain_name
from lanewise.virtual_gpu.driver.arrays import ArrayCalls
from lanewise.virtual_gpu.driver.devices import function_attributes
from lanewise.virtual_gpu.driver.entry_points import I32, U32, U64, Handle, Pointer, Text
from lanewise.virtual_gpu.driver.host_regions import explained
from lanewise.virtual_gpu.driver.modules import (
    LoadedFunction,
    LoadedModule,
    function_of,
    image_at,
    know_ptx,
    load_file,
    load_ptx,
    ptx_in,
)
from lanewise.virtual_gpu.driver.results import DriverError, Result
from lanewise.virtual_gpu.driver.streams import DEFAULT

_POINTER_BYTES = 8
#: Attributes of a launch by the numbers of cuda.h, and the bytes of one: a number, padding, and its value.
_COOPERATIVE, _CLUSTER, _OVERLAP = 2, 4, 6
ATTRIBUTE_BYTES, _VALUE_OFFSET = 72, 8
#: Words of `extra` of a launch: a buffer with all parameters, its size, and the end.
_BUFFER, _BUFFER_SIZE, _END = 1, 2, 0
_DYNAMIC_SHARED = 8
#: Attributes of a function: the threads that a block may have, and the bytes of its static shared memory.
_MOST_THREADS, _STATIC_SHARED = 0, 1
#: The state of a function that is loaded (CUfunctionLoadingState).
_LOADED = 1
_SHARED_BYTES = ctypes.CFUNCTYPE(ctypes.c_size_t, ctypes.c_int32)

Three = tuple[int, int, int]
Tensor = TypeVar("Tensor", bound=MappedTensor)


class LaunchConfig(ctypes.Structure):
    """CUlaunchConfig: grid, block, shared memory, stream, attributes."""

    _fields_ = (
        ("grid", ctypes.c_uint32 * 3),
        ("block", ctypes.c_uint32 * 3),
        ("shared_bytes", ctypes.c_uint32),
        ("stream", ctypes.c_uint64),
        ("attributes", ctypes.c_uint64),
        ("count", ctypes.c_uint32),
    )

    @property
    def values(self) -> dict[int, int]:
        """Where the value of each attribute lies, by the number of the attribute."""
        places = [self.attributes + number * ATTRIBUTE_BYTES for number in range(self.count)]
        return {ctypes.c_uint32.from_address(place).value: place + _VALUE_OFFSET for place in places}

    @property
    def cluster(self) -> Three | None:
        """The blocks of a cluster along each axis; None if the launch has no clusters."""
        place = self.values.get(_CLUSTER)
        return None if place is None else three_sizes((ctypes.c_uint32 * 3).from_address(place))


class LaunchCalls(ArrayCalls):
    """Modules and their functions, launches, tensor maps."""

    # modules ------------------------------------------------------------------------------------------------

    def load(self, ptx: str) -> int:
        """Return a handle of the module of a PTX text."""
        return self.handle(load_ptx(ptx, self.device))

    def know_ptx(self, cubin: bytes, ptx: str) -> None:
        """Keep the PTX that a cubin was made of: it runs where a program loads the cubin."""
        know_ptx(cubin, ptx)

    def cuModuleLoad(self, path: Text) -> Annotated[Handle, "module"]:
        """Return a handle of the module in a file."""
        return self.handle(load_file(path, self.device))

    def cuModuleLoadData(self, image: Pointer) -> Annotated[Handle, "module"]:
        """Return a handle of the module of an image: PTX or a fatbin."""
        return self.load(ptx_in(image_at(image), arch_number(self.device.arch)))

    def cuModuleLoadDataEx(
        self, image: Pointer, count: U32, options: Pointer, values: Pointer
    ) -> Annotated[Handle, "module"]:
        """Return a handle of the module of an image; options are for a compiler that is not used."""
        return self.cuModuleLoadData(image)

    cuModuleLoadFatBinary = cuModuleLoadData

    def kernel_name(self, handle: int) -> str:
        """Return the name of a function in its PTX."""
        return self.known(handle, LoadedFunction).entry.name

    def is_function(self, handle: int) -> bool:
        """Return whether a number is the handle of a function."""
        return isinstance(self._known.get(handle), LoadedFunction)

    def cuModuleUnload(self, module: Handle) -> None:
        """Forget a module: its handle is none from now on, and its variables are out of reach."""
        for memory in module_memory(self.forget(module, LoadedModule).module).variables.values():
            self.memory.disown(address(memory))

    def cuModuleGetFunction(self, module: Handle, name: Text) -> Annotated[Handle, "function"]:
        """Return a handle of a kernel."""
        return self.handle(function_of(self.known(module, LoadedModule), name))

    def cuModuleGetGlobal_v2(self, module: Handle, name: Text) -> Annotated[tuple[U64, U64], "address bytes"]:
        """Return the address and the bytes of a variable."""
        owner = self.known(module, LoadedModule).module
        variable = owner.variables.get(name)
        if variable is None or variable.space not in ("global", "const"):
            raise DriverError(Result.NOT_FOUND, f"the module has no variable {name!r}")
        memory = variable_bytes(owner, name)
        start = address(memory)
        self.memory.adopt(start, variable.size, f"the variable {name} ({variable.size:,} bytes)", memory)
        return start, variable.size

    def cuModuleGetLoadingMode(self) -> Annotated[I32, "mode"]:
        """Return that modules are loaded when their functions are asked for (CU_MODULE_LAZY_LOADING)."""
        return 2

    def cuLibraryLoadData(self, image: int, *options: int) -> int:
        """Return a handle of the library of an image: a module."""
        return self.cuModuleLoadData(image)

    def cuLibraryUnload(self, library: Handle) -> None:
        """Forget a library: its handle is none from now on."""
        self.cuModuleUnload(library)

    def cuLibraryGetKernel(self, library: Handle, name: Text) -> Annotated[Handle, "kernel"]:
        """Return a handle of a kernel."""
        return self.cuModuleGetFunction(library, name)

    def cuLibraryGetModule(self, library: Handle) -> Annotated[Handle, "module"]:
        """Return the library, which is a module."""
        return library

    def cuLibraryGetGlobal(self, library: Handle, name: Text) -> Annotated[tuple[U64, U64], "address bytes"]:
        """Return the address and the bytes of a variable."""
        return self.cuModuleGetGlobal_v2(library, name)

    def cuKernelGetFunction(self, kernel: Handle) -> Annotated[Handle, "function"]:
        """Return the kernel, which is a function."""
        return kernel

    # functions ----------------------------------------------------------------------------------------------

    def cuFuncGetAttribute(self, attribute: I32, function: Handle) -> Annotated[I32, "value"]:
        """Return an attribute of a function."""
        known = self.known(function, LoadedFunction)
        if attribute in known.attributes:
            return known.attributes[attribute]
        kernel = known.entry.function
        variables = known.owner.module.variables.values()
        static, constant = (
            sum(variable.size for variable in variables if variable.space == space)
            for space in ("shared", "const")
        )
        limit = kernel.limit("reqntid") or kernel.limit("maxntid")
        values = function_attributes(static, constant, 32, arch_number(self.device.arch))
        if limit is not None:
            values[0] = prod(limit)
        if attribute not in values:
            raise DriverError(Result.INVALID_VALUE, f"no attribute of a function has the number {attribute}")
        return values[attribute]

    def cuFuncSetAttribute(self, function: Handle, attribute: I32, value: I32) -> None:
        """Keep an attribute of a function; more dynamic shared memory than the device has is an error."""
        if attribute == _DYNAMIC_SHARED and value > self.device.shared_bytes:
            raise DriverError(
                Result.INVALID_VALUE,
                f"{value:,} bytes of dynamic shared memory are more than a block may have: "
                f"{self.device.shared_bytes:,} on the virtual {self.device.name}",
            )
        self.known(function, LoadedFunction).attributes[attribute] = value

    def cuKernelGetAttribute(self, attribute: I32, kernel: Handle, device: I32) -> Annotated[I32, "value"]:
        """Return an attribute of a kernel."""
        return self.cuFuncGetAttribute(attribute, kernel)

    def cuKernelSetAttribute(self, attribute: I32, value: I32, kernel: Handle, device: I32) -> None:
        """Keep an attribute of a kernel."""
        self.cuFuncSetAttribute(kernel, attribute, value)

    def cuFuncSetCacheConfig(self, function: Handle, config: I32) -> None:
        """Do nothing: the machine has no cache."""
        self.known(function, LoadedFunction)

    cuFuncSetSharedMemConfig = cuFuncSetCacheConfig

    def cuFuncGetModule(self, function: Handle) -> Annotated[Handle, "module"]:
        """Return a handle of the module of a function."""
        return self.handle(self.known(function, LoadedFunction).owner)

    def cuFuncGetName(self, function: Handle) -> Annotated[Pointer, "name"]:
        """Return the address of the name of a function."""
        return self.text_address(self.known(function, LoadedFunction).entry.name)

    def cuFuncGetParamInfo(
        self, function: Handle, index: U64
    ) -> Annotated[tuple[U64, U64], "offset bytes", 2]:
        """Return the offset and the bytes of a parameter."""
        parameters = self.known(function, LoadedFunction).entry.parameters
        if index >= len(parameters):
            raise DriverError(Result.INVALID_VALUE, f"the function has {len(parameters)} parameters")
        return _offsets(parameters)[index], parameters[index].size

    def cuOccupancyMaxActiveBlocksPerMultiprocessor(
        self, function: Handle, threads: I32, shared_bytes: U64
    ) -> Annotated[I32, "blocks"]:
        """Return how many blocks of a function a multiprocessor holds."""
        entry = self.known(function, LoadedFunction).entry
        try:
            return int(
                entry.occupancy(self.device.arch, block=(threads, 1, 1), shared_bytes=shared_bytes).blocks
            )
        except LanewiseError as error:
            raise DriverError(Result.INVALID_VALUE, str(error)) from None

    def cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
        self, function: Handle, threads: I32, shared_bytes: U64, flags: U32
    ) -> Annotated[I32, "blocks"]:
        """Return how many blocks of a function a multiprocessor holds."""
        return self.cuOccupancyMaxActiveBlocksPerMultiprocessor(function, threads, shared_bytes)

    def cuOccupancyMaxPotentialBlockSize(
        self, function: Handle, shared_of: Pointer, shared_bytes: U64, limit: I32
    ) -> Annotated[tuple[I32, I32], "blocks threads"]:
        """Return the blocks that fill the device and the threads of a block that occupy it most.

        `shared_of` is the address of a function of the program that says how much dynamic shared memory a
        block of some threads has; 0 if every block has `shared_bytes`.
        """
        most = self.cuFuncGetAttribute(_MOST_THREADS, function)
        if limit:
            most = min(most, limit)
        best_threads, best_blocks = 0, 0
        for threads in range(-(-most // WARP) * WARP, 0, -WARP):
            threads = min(threads, most)
            shared = _SHARED_BYTES(shared_of)(threads) if shared_of else shared_bytes
            try:
                blocks = self.cuOccupancyMaxActiveBlocksPerMultiprocessor(function, threads, shared)
            except DriverError:
                continue  # not one block of so many threads fits
            if blocks * threads > best_blocks * best_threads:
                best_threads, best_blocks = threads, blocks
        return best_blocks * self.device.multiprocessors, best_threads

    def cuOccupancyMaxPotentialBlockSizeWithFlags(
        self, function: Handle, shared_of: Pointer, shared_bytes: U64, limit: I32, flags: U32
    ) -> Annotated[tuple[I32, I32], "blocks threads"]:
        """Return the blocks that fill the device and the threads of a block that occupy it most."""
        return self.cuOccupancyMaxPotentialBlockSize(function, shared_of, shared_bytes, limit)

    def cuModuleGetFunctionCount(self, module: Handle) -> Annotated[U32, "count"]:
        """Return how many functions a module has."""
        return len(self.known(module, LoadedModule).module.entries)

    def cuModuleEnumerateFunctions(self, functions: Pointer, count: U32, module: Handle) -> None:
        """Write handles of the functions of a module, as many as there is room for."""
        names = list(self.known(module, LoadedModule).module.entries)[:count]
        target = (ctypes.c_uint64 * len(names)).from_address(functions)
        target[:] = [self.cuModuleGetFunction(module, name) for name in names]

    def cuFuncIsLoaded(self, function: Handle) -> Annotated[I32, "state"]:
        """Return that a function is loaded."""
        return _LOADED

    def cuFuncLoad(self, function: Handle) -> None:
        """Do nothing: a function is loaded with its module."""

    def cuLibraryGetKernelCount(self, library: Handle) -> Annotated[U32, "count"]:
        """Return how many kernels a library has."""
        return self.cuModuleGetFunctionCount(library)

    def cuLibraryEnumerateKernels(self, kernels: Pointer, count: U32, library: Handle) -> None:
        """Write the handles of a library's first kernels."""
        self.cuModuleEnumerateFunctions(kernels, count, library)

    def cuOccupancyAvailableDynamicSMemPerBlock(
        self, function: Handle, blocks: I32, threads: I32
    ) -> Annotated[U64, "bytes"]:
        """Return the dynamic shared memory of a block if so many blocks share a multiprocessor."""
        if blocks < 1:
            raise DriverError(Result.INVALID_VALUE, f"a multiprocessor with {blocks} blocks")
        static = self.cuFuncGetAttribute(_STATIC_SHARED, function)
        whole = self.device.multiprocessor.shared_bytes // blocks - self.device.multiprocessor.reserved_bytes
        return max(0, min(whole, self.device.shared_bytes) - static)

    def cuOccupancyMaxActiveClusters(self, function: Handle, config: Pointer) -> Annotated[I32, "clusters"]:
        """Return how many clusters of a launch the device holds at once."""
        self.known(function, LoadedFunction)
        asked = LaunchConfig.from_address(config)
        blocks = self.cuOccupancyMaxActiveBlocksPerMultiprocessor(
            function, prod(asked.block), asked.shared_bytes
        )
        return blocks * self.device.multiprocessors // prod(asked.cluster or (1,))

    # launches -----------------------------------------------------------------------------------------------

    def launch(
        self, function: LoadedFunction, shape: Shape, values: Sequence[Any], stream: int = DEFAULT
    ) -> None:
        """Launch a kernel with arguments as `kernel[grid, block](…)` takes them."""
        self.launcher(Configured(function.entry, shape), tuple(values), stream)

    def cuLaunchKernelEx(
        self, config: Pointer, function: Handle, parameters: Pointer, extra: Pointer
    ) -> None:
        """Launch a kernel as a record says: with clusters, and overlapping with the kernel before it."""
        asked = LaunchConfig.from_address(config)
        overlap = _OVERLAP in asked.values and bool(ctypes.c_int32.from_address(asked.values[_OVERLAP]).value)
        grid, block = three_sizes(asked.grid), three_sizes(asked.block)
        shape = Shape(grid, block, asked.shared_bytes, asked.cluster, overlap)
        self._launch(function, shape, parameters, extra, asked.stream)

    def cuLaunchKernel(self, function: int, *rest: int) -> None:
        """Launch a kernel: grid, block, bytes of shared memory, stream, parameters, extra."""
        *sizes, shared_bytes, stream, parameters, extra = rest
        shape = Shape(three_sizes(sizes[:3]), three_sizes(sizes[3:]), shared_bytes)
        self._launch(function, shape, parameters, extra, stream)

    def cuLaunchCooperativeKernel(self, function: int, *rest: int) -> None:
        """Launch a kernel whose blocks wait for each other."""
        self.cuLaunchKernel(function, *rest, 0)

    def _launch(self, function: int, shape: Shape, parameters: int, extra: int, stream: int) -> None:
        """Read the arguments from memory and launch; a fault becomes a result."""
        known = self.known(function, LoadedFunction)
        if 0 in (*shape.grid, *shape.block):
            raise DriverError(Result.INVALID_VALUE, f"a grid of {shape.grid} and a block of {shape.block}")
        self._require_shared(known, shape.shared_bytes)
        values = [self.argument(variable, raw) for variable, raw in _raw(known, parameters, extra)]
        try:
            self.launch(known, shape, values, stream)
        except Deadlock as error:
            raise DriverError(Result.LAUNCH_TIMEOUT, str(error)) from None
        except KernelFault as error:
            result = {
                "misaligned": Result.MISALIGNED_ADDRESS,
                "endless": Result.LAUNCH_TIMEOUT,
                "trap": Result.LAUNCH_FAILED,
                "assertion": Result.ASSERT,
            }
            reason = explained(self.memory, str(error))
            raise DriverError(result.get(error.kind or "", Result.ILLEGAL_ADDRESS), reason) from None
        except LanewiseError as error:
            raise DriverError(Result.INVALID_VALUE, str(error)) from None

    def _require_shared(self, function: LoadedFunction, dynamic: int) -> None:
        """Raise an error for more dynamic shared memory than a kernel may have by what the program set."""
        most = max(function.attributes.get(_DYNAMIC_SHARED, 0), STATIC_SHARED_BYTES)
        if most < dynamic <= self.device.shared_bytes:
            raise DriverError(
                Result.INVALID_VALUE,
                f"{dynamic:,} bytes of dynamic shared memory, and the kernel may have {most:,} unless the "
                f"program allows more: cudaFuncSetAttribute({plain_name(function.entry.name)}, "
                f"cudaFuncAttributeMaxDynamicSharedMemorySize, {dynamic})",
            )

    def argument(self, variable: Any, raw: bytes) -> Any:
        """Return the bytes of a parameter as an argument; a pointer into known memory becomes an array of it.

        Then messages can say which argument an access belongs to.
        """
        if variable.dims or variable.vector > 1:
            return raw
        if len(raw) == _POINTER_BYTES and variable.type[0] != "f":
            word = int.from_bytes(raw, "little")
            image = self.images.get(word)
            if image is not None:
                return image
            memory = self.memory.rest(word)
            if memory is not None and memory.size:
                return memory
        return number_of(raw, variable)

    # tensor maps --------------------------------------------------------------------------------------------

    def tiled_tensor(
        self, type: int, dims: Sequence[int], strides: Sequence[int], box: Sequence[int],
        element_strides: Sequence[int], interleave: int, swizzle: int, l2_promotion: int, fill: int,
    ) -> TiledTensor:  # fmt: skip
        """Return a tensor as a tensor map describes it, of the numbers of cuda.h; axis 0 is the innermost."""
        return _legal(
            TiledTensor(
                _element_type(type),
                tuple(dims),
                tuple(strides),
                tuple(box),
                tuple(element_strides),
                *_modes(interleave, swizzle, l2_promotion, fill),
                self.device.arch,
            )
        )

    def im2col_tensor(
        self, type: int, dims: Sequence[int], strides: Sequence[int],
        corners: tuple[Sequence[int], Sequence[int]], column: tuple[int, int], element_strides: Sequence[int],
        modes: tuple[int, int, int, int],
    ) -> Im2colTensor:  # fmt: skip
        """Return images as a tensor map of columns describes them; axis 0 is the innermost.

        `column` is the channels of a pixel and the pixels that a copy takes; `modes` are the interleaved
        layout, swizzle, promotion of L2 and fill.
        """
        lower, upper = (tuple(corner) for corner in corners)
        return _legal(
            Im2colTensor(
                _element_type(type),
                tuple(dims),
                tuple(strides),
                lower,
                upper,
                *column,
                tuple(element_strides),
                *_modes(*modes),
            )
        )

    def cuTensorMapEncodeTiled(
        self, map: Pointer, type: I32, rank: U32, address: U64, dims: Pointer, strides: Pointer, box: Pointer,
        element_strides: Pointer, interleave: I32, swizzle: I32, l2_promotion: I32, fill: I32,
    ) -> None:  # fmt: skip
        """Write the 128 bytes of a tensor map."""
        if not 1 <= rank <= 5:
            raise DriverError(Result.INVALID_VALUE, f"a tensor has 1 to 5 axes, not {rank}")
        tensor = self.tiled_tensor(
            type,
            list((ctypes.c_uint64 * rank).from_address(dims)),
            list((ctypes.c_uint64 * (rank - 1)).from_address(strides)) if rank > 1 else [],
            list((ctypes.c_uint32 * rank).from_address(box)),
            list((ctypes.c_uint32 * rank).from_address(element_strides)),
            interleave,
            swizzle,
            l2_promotion,
            fill,
        )
        _write_map(map, tensor, address)

    def cuTensorMapEncodeIm2col(
        self, map: Pointer, type: I32, rank: U32, address: U64, dims: Pointer, strides: Pointer,
        lower: Pointer, upper: Pointer, channels: U32, pixels: U32, element_strides: Pointer,
        interleave: I32, swizzle: I32, l2_promotion: I32, fill: I32,
    ) -> None:  # fmt: skip
        """Write the 128 bytes of a tensor map for columns of pixels."""
        if not LEAST_AXES <= rank <= MOST_AXES:
            raise DriverError(
                Result.INVALID_VALUE, f"images have {LEAST_AXES} to {MOST_AXES} axes, not {rank}"
            )
        pixel_axes = rank - OTHER_AXES
        tensor = self.im2col_tensor(
            type,
            list((ctypes.c_uint64 * rank).from_address(dims)),
            list((ctypes.c_uint64 * (rank - 1)).from_address(strides)),
            (
                list((ctypes.c_int32 * pixel_axes).from_address(lower)),
                list((ctypes.c_int32 * pixel_axes).from_address(upper)),
            ),
            (channels, pixels),
            list((ctypes.c_uint32 * rank).from_address(element_strides)),
            (interleave, swizzle, l2_promotion, fill),
        )
        _write_map(map, tensor, address)

    def cuTensorMapReplaceAddress(self, map: Pointer, address: U64) -> None:
        """Let a tensor map be that of the tensor at another address."""
        place = FIELD["address"]
        if address % place.unit:
            raise DriverError(
                Result.INVALID_VALUE, f"the address of a tensor is a multiple of {place.unit} bytes"
            )
        bits = int.from_bytes(ctypes.string_at(map, MAP_BYTES), "little") & ~place.mask | place.put(address)
        ctypes.memmove(map, bits.to_bytes(MAP_BYTES, "little"), MAP_BYTES)


def _element_type(number: int) -> str:
    """Return the name of an element type of cuda.h."""
    return _named({name: kind.driver_code for name, kind in EVERY_TYPE.items()}, number, "element type")


def _modes(interleave: int, swizzle: int, l2_promotion: int, fill: int) -> tuple[str, str, str, str]:
    """Return the names of the modes of a tensor map."""
    return (
        _named(
            {name: interleaving.code for name, interleaving in INTERLEAVES.items()},
            interleave,
            "interleaved layout",
        ),
        _named(SWIZZLE_NUMBERS, swizzle, "swizzle"),
        _named(L2_PROMOTIONS, l2_promotion, "promotion of L2"),
        _named(FILLS, fill, "fill"),
    )


def _legal(tensor: Tensor) -> Tensor:
    """Return a tensor that a tensor map can describe; another one is an error of the driver."""
    try:
        tensor.require_legal()
    except LanewiseError as error:
        raise DriverError(Result.INVALID_VALUE, str(error)) from None
    return tensor


def _write_map(map: int, tensor: MappedTensor, address: int) -> None:
    """Write the 128 bytes of a tensor map to host memory."""
    try:
        raw = tensor.encode(address)
    except LanewiseError as error:
        raise DriverError(Result.INVALID_VALUE, str(error)) from None
    ctypes.memmove(map, raw, MAP_BYTES)


def three_sizes(sizes: Iterable[int]) -> Three:
    """Return a grid or a block of up to three sizes as three."""
    x, y, z = (*(int(size) for size in sizes), 1, 1)[:3]
    return x, y, z


def _named(codes: dict[str, int], code: int, what: str) -> str:
    """Return the name of a number of cuda.h."""
    name = next((name for name, known in codes.items() if known == code), None)
    if name is None:
        raise DriverError(Result.INVALID_VALUE, f"no {what} of a tensor map has the number {code}")
    return name


def _offsets(parameters: Sequence[Any]) -> list[int]:
    """Return the offset of each parameter in the buffer of all."""
    offsets, end = [], 0
    for variable in parameters:
        end += -end % variable.alignment
        offsets.append(end)
        end += variable.size
    return offsets


def _raw(function: LoadedFunction, parameters: int, extra: int) -> list[tuple[object, bytes]]:
    """Return each parameter with its bytes, read from the addresses that the program passed."""
    variables = function.entry.parameters
    if parameters:
        places = (ctypes.c_uint64 * len(variables)).from_address(parameters)
    elif variables and extra:
        words, at = {}, extra
        while (word := ctypes.c_uint64.from_address(at).value) != _END:
            words[word] = ctypes.c_uint64.from_address(at + 8).value
            at += 16
        if _BUFFER not in words:
            raise DriverError(Result.INVALID_VALUE, "the launch has neither parameters nor a buffer of them")
        offsets = [words[_BUFFER] + offset for offset in _offsets(variables)]
        places = (ctypes.c_uint64 * len(variables))(*offsets)
    elif variables:
        raise DriverError(
            Result.INVALID_VALUE, f"the kernel takes {len(variables)} parameters; none was passed"
        )
    else:
        return []
    return [
        (variable, ctypes.string_at(place, variable.size))
        for variable, place in zip(variables, places, strict=True)
    ]


def number_of(raw: bytes, variable: Any) -> Any:
    """Return the bytes of a parameter as a number of its type; a struct stays bytes."""
    import numpy as np

    if variable.dims or variable.vector > 1:
        return raw
    size = variable.size
    if len(raw) < size:
        raw += (b"\xff" if raw and raw[-1] & 0x80 else b"\0") * (size - len(raw))
    kind = "f" if variable.type[0] == "f" and size > 1 else "u"
    return np.frombuffer(raw[:size], f"{kind}{size}")[0]
