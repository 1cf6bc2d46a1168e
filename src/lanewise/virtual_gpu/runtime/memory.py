"""The struct cudaDeviceProp of CUDA 13 and of CUDA 12, filled from the driver's attributes."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Annotated, Any

from lanewise.virtual_gpu.driver import Driver, DriverError, Result
from lanewise.virtual_gpu.driver.arrays import LINEAR, Box, TexelArray, TextureSettings
from lanewise.virtual_gpu.driver.entry_points import I32, U32, U64, Handle, Pointer
from lanewise.virtual_gpu.driver.graphs import NodeKind, Work, with_copy
from lanewise.virtual_gpu.runtime.entry_points import Extent, PitchedMemory
from lanewise.virtual_gpu.runtime.launching import LaunchCalls

#: The fields in order: a name, `:s` for a size_t, `*n` for an array, the numbers of its device attributes
#: behind `=`, and `!` before those that CUDA 13 has no more.
_FIELDS = """
totalGlobalMem:s sharedMemPerBlock:s=8 regsPerBlock=12 warpSize=10 memPitch:s=11 maxThreadsPerBlock=1
maxThreadsDim*3=2,3,4 maxGridSize*3=5,6,7 !clockRate=13 totalConstMem:s=9 major=75 minor=76
textureAlignment:s=14 texturePitchAlignment:s=51 !deviceOverlap=15 multiProcessorCount=16
!kernelExecTimeoutEnabled=17 integrated=18 canMapHostMemory=19 !computeMode=20 maxTexture1D=21
maxTexture1DMipmap=77 !maxTexture1DLinear=69 maxTexture2D*2=22,23 maxTexture2DMipmap*2=73,74
maxTexture2DLinear*3=70,71,72 maxTexture2DGather*2=45,46 maxTexture3D*3=24,25,26 maxTexture3DAlt*3=47,48,49
maxTextureCubemap=52 maxTexture1DLayered*2=42,43 maxTexture2DLayered*3=27,28,29
maxTextureCubemapLayered*2=53,54 maxSurface1D=55 maxSurface2D*2=56,57 maxSurface3D*3=58,59,60
maxSurface1DLayered*2=61,62 maxSurface2DLayered*3=63,64,65 maxSurfaceCubemap=66
maxSurfaceCubemapLayered*2=67,68 surfaceAlignment:s=30 concurrentKernels=31 ECCEnabled=32 pciBusID=33
pciDeviceID=34 pciDomainID=50 tccDriver=35 asyncEngineCount=40 unifiedAddressing=41 !memoryClockRate=36
memoryBusWidth=37 l2CacheSize=38 persistingL2CacheMaxSize=108 maxThreadsPerMultiProcessor=39
streamPrioritiesSupported=78 globalL1CacheSupported=79 localL1CacheSupported=80
sharedMemPerMultiprocessor:s=81 regsPerMultiprocessor=82 managedMemory=83 isMultiGpuBoard=84
multiGpuBoardGroupID=85 hostNativeAtomicSupported=86 !singleToDoublePrecisionPerfRatio=87
pageableMemoryAccess=88 concurrentManagedAccess=89 computePreemptionSupported=90
canUseHostPointerForRegisteredMem=91 cooperativeLaunch=95 !cooperativeMultiDeviceLaunch=96
sharedMemPerBlockOptin:s=97 pageableMemoryAccessUsesHostPageTables=100 directManagedMemAccessFromHost=101
maxBlocksPerMultiProcessor=106 accessPolicyMaxWindowSize=109 reservedSharedMemPerBlock:s=111
hostRegisterSupported=99 sparseCudaArraySupported=112 hostRegisterReadOnlySupported=113
timelineSemaphoreInteropSupported=114 memoryPoolsSupported=115 gpuDirectRDMASupported=116
gpuDirectRDMAFlushWritesOptions=117 gpuDirectRDMAWritesOrdering=118 memoryPoolSupportedHandleTypes=119
deferredMappingCudaArraySupported=121 ipcEventSupported=125 clusterLaunch=120 unifiedFunctionPointers=129
"""
_NAME_BYTES = 256


@cache
def _layout(release: int) -> tuple[type[ctypes.Structure], tuple[tuple[str, tuple[int, ...]], ...]]:
    """Return the struct of a release of CUDA, and the attributes of each field."""
    fields: list[tuple[str, Any]] = [
        ("name", ctypes.c_char * _NAME_BYTES),
        ("uuid", ctypes.c_char * 16),
        ("luid", ctypes.c_char * 8),
        ("luidDeviceNodeMask", ctypes.c_uint32),
    ]
    attributes: list[tuple[str, tuple[int, ...]]] = []
    for word in _FIELDS.split():
        title, _, numbers = word.partition("=")
        if title.startswith("!") and release >= 13:
            continue
        title, _, count = title.lstrip("!").partition("*")
        title, _, size = title.partition(":")
        kind: Any = ctypes.c_size_t if size else ctypes.c_int32
        fields.append((title, kind * int(count) if count else kind))
        attributes.append((title, tuple(map(int, numbers.split(","))) if numbers else ()))
    struct = type("DeviceProperties", (ctypes.Structure,), {"_fields_": fields})
    return struct, tuple(attributes)


def write_properties(place: int, driver: Driver, release: int) -> None:
    """Write the properties of the device as a release of CUDA has them."""
    from lanewise.virtual_gpu.driver.devices import device_attributes

    struct, attributes = _layout(release)
    known = device_attributes(driver.device)
    properties: Any = struct.from_address(place)
    ctypes.memset(place, 0, ctypes.sizeof(struct))
    properties.name = driver.device.title.encode()[: _NAME_BYTES - 1]
    for title, numbers in attributes:
        values = [known.get(number, 0) for number in numbers]
        if len(values) > 1:
            getattr(properties, title)[:] = values
        elif values:
            setattr(properties, title, values[0])
    properties.totalGlobalMem = driver.device.memory_bytes


#: Kinds of channels (cudaChannelFormatKind) as NumPy has them.
_CHANNEL_KINDS = {0: "i", 1: "u", 2: "f"}
_UNREGISTERED, _HOST, _DEVICE, _MANAGED = 0, 1, 2, 3
_NORMALIZED_FLOAT = 1


class _Format(ctypes.Structure):
    """cudaChannelFormatDesc: bits of up to four channels, and their kind."""

    _fields_ = (("bits", ctypes.c_int32 * 4), ("kind", ctypes.c_int32))


class _Pitched(ctypes.Structure):
    """cudaPitchedPtr: memory of rows."""

    _fields_ = tuple((name, ctypes.c_uint64) for name in ("start", "pitch", "width", "height"))


class _Copy3D(ctypes.Structure):
    """cudaMemcpy3DParms."""

    _fields_ = (
        ("source_array", ctypes.c_uint64),
        ("source_at", ctypes.c_uint64 * 3),
        ("source", _Pitched),
        ("target_array", ctypes.c_uint64),
        ("target_at", ctypes.c_uint64 * 3),
        ("target", _Pitched),
        ("extent", ctypes.c_uint64 * 3),
        ("kind", ctypes.c_int32),
    )


#: The bytes of the record of a copy.
COPY_BYTES = ctypes.sizeof(_Copy3D)


class _TextureDescription(ctypes.Structure):
    """The first fields of cudaTextureDesc."""

    _fields_ = (
        ("address", ctypes.c_int32 * 3),
        ("filter", ctypes.c_int32),
        ("read", ctypes.c_int32),
        ("srgb", ctypes.c_int32),
        ("border", ctypes.c_float * 4),
        ("is_normalized", ctypes.c_int32),
        ("of_mipmaps", ctypes.c_int32 * 6),
        ("is_seamless", ctypes.c_int32),
    )


class MemoryCalls(LaunchCalls):
    """The device, memory, arrays and textures, in the runtime's words."""

    # device -------------------------------------------------------------------------------------------------

    def cudaSetDevice(self, device: I32) -> None:
        """Do nothing for device 0, which is the only one."""
        self.driver.require_device(device)

    def cudaInitDevice(self, device: I32, device_flags: U32, flags: U32) -> None:
        """Do nothing for device 0, which is the only one."""
        self.driver.require_device(device)

    def cudaGetDeviceProperties(self, properties: Pointer, device: I32) -> None:
        """Write the properties of the device as CUDA 13 has them."""
        self.driver.require_device(device)
        write_properties(properties, self.driver, 13)

    def cudaGetDeviceProperties_v2(self, properties: Pointer, device: I32) -> None:
        """Write the properties of the device as CUDA 12 has them."""
        self.driver.require_device(device)
        write_properties(properties, self.driver, 12)

    def cudaDeviceEnablePeerAccess(self, peer: I32, flags: U32) -> None:
        """Answer that there is no other device."""
        raise DriverError(Result.INVALID_DEVICE, "there is one device: it has no peer")

    def cudaDeviceDisablePeerAccess(self, peer: I32) -> None:
        """Answer that there is no other device."""
        raise DriverError(Result.INVALID_DEVICE, "there is one device: it has no peer")

    def cudaDeviceGetP2PAttribute(self, attribute: I32, source: I32, target: I32) -> Annotated[I32, "value"]:
        """Answer that there is no other device."""
        raise DriverError(Result.INVALID_DEVICE, "there is one device: it has no peer")

    # memory -------------------------------------------------------------------------------------------------

    def cudaMalloc(self, bytes: U64) -> Annotated[U64, "address"]:
        """Return the address of new memory; 0 bytes are none."""
        return self.driver.cuMemAlloc_v2(bytes) if bytes else 0

    def cudaMallocHost(self, bytes: U64) -> Annotated[U64, "address"]:
        """Return the address of new host memory; 0 bytes are none."""
        return self.driver.cuMemAllocHost_v2(bytes) if bytes else 0

    def cudaMallocPitch(self, width: U64, height: U64) -> Annotated[tuple[U64, U64], "address pitch"]:
        """Return the address of new memory for rows, and the bytes from one row to the next."""
        return self.driver.cuMemAllocPitch_v2(width, height, 4)

    def cudaMalloc3D(self, pitched: Pointer, extent: Extent) -> None:
        """Write address and pitch of new memory for planes of rows."""
        width, height, depth = (ctypes.c_uint64 * 3).from_address(extent)
        start, pitch = self.driver.cuMemAllocPitch_v2(width, height * depth, 4)
        target = _Pitched.from_address(pitched)
        target.start, target.pitch, target.width, target.height = start, pitch, width, height

    def cudaHostGetFlags(self, address: U64) -> Annotated[U32, "flags"]:
        """Return that host memory is mapped (cudaHostAllocMapped)."""
        self.driver.cuMemGetAddressRange_v2(address)
        return 2

    def cudaMemcpy(self, target: U64, source: U64, bytes: U64, kind: I32) -> None:
        """Copy bytes; addresses say themselves on which side they are."""
        self.driver.cuMemcpy(target, source, bytes)

    def cudaMemcpyAsync(self, target: U64, source: U64, bytes: U64, kind: I32, stream: Handle) -> None:
        """Copy bytes in a stream."""
        self.driver.cuMemcpyAsync(target, source, bytes, stream)

    def cudaMemcpyPeer(
        self, target: U64, target_device: I32, source: U64, source_device: I32, bytes: U64
    ) -> None:
        """Copy bytes within the only device."""
        self.driver.require_device(target_device)
        self.driver.require_device(source_device)
        self.driver.cuMemcpy(target, source, bytes)

    def cudaMemcpyPeerAsync(
        self, target: U64, target_device: I32, source: U64, source_device: I32, bytes: U64, stream: Handle
    ) -> None:
        """Copy bytes within the only device."""
        self.driver.require_device(target_device)
        self.driver.require_device(source_device)
        self.driver.cuMemcpyAsync(target, source, bytes, stream)

    def _symbol(self, symbol: int, offset: int, bytes: int) -> int:
        """Return the address in a variable; an error if bytes at an offset reach beyond it."""
        start, size = self.variable(symbol)
        if offset + bytes > size:
            raise DriverError(
                Result.INVALID_VALUE, f"{bytes:,} bytes at {offset:,} in a variable of {size:,} bytes"
            )
        return start + offset

    def cudaMemcpyToSymbol(self, symbol: Pointer, source: U64, bytes: U64, offset: U64, kind: I32) -> None:
        """Copy bytes to a variable."""
        self.driver.cuMemcpy(self._symbol(symbol, offset, bytes), source, bytes)

    def cudaMemcpyFromSymbol(self, target: U64, symbol: Pointer, bytes: U64, offset: U64, kind: I32) -> None:
        """Copy bytes of a variable."""
        self.driver.cuMemcpy(target, self._symbol(symbol, offset, bytes), bytes)

    def cudaMemcpyToSymbolAsync(
        self, symbol: Pointer, source: U64, bytes: U64, offset: U64, kind: I32, stream: Handle
    ) -> None:
        """Copy bytes to a variable in a stream."""
        self.driver.cuMemcpyAsync(self._symbol(symbol, offset, bytes), source, bytes, stream)

    def cudaMemcpyFromSymbolAsync(
        self, target: U64, symbol: Pointer, bytes: U64, offset: U64, kind: I32, stream: Handle
    ) -> None:
        """Copy bytes of a variable in a stream."""
        self.driver.cuMemcpyAsync(target, self._symbol(symbol, offset, bytes), bytes, stream)

    def cudaGetSymbolAddress(self, symbol: Pointer) -> Annotated[U64, "address"]:
        """Return the address of a variable."""
        return self.variable(symbol)[0]

    def cudaGetSymbolSize(self, symbol: Pointer) -> Annotated[U64, "bytes"]:
        """Return the bytes of a variable."""
        return self.variable(symbol)[1]

    def cudaMemset(self, address: U64, value: I32, bytes: U64) -> None:
        """Fill memory with a byte."""
        if bytes:
            self.driver.cuMemsetD8_v2(address, value, bytes)

    def cudaMemsetAsync(self, address: U64, value: I32, bytes: U64, stream: Handle) -> None:
        """Fill memory with a byte in a stream."""
        if bytes:
            self.driver.cuMemsetD8Async(address, value, bytes, stream)

    def cudaPointerGetAttributes(self, attributes: Pointer, address: U64) -> None:
        """Write what a pointer is: memory of the device, of the host, of both, or none that is known."""
        known = self.driver.memory.find(address)
        if known is None:
            kind, device = _UNREGISTERED, -2
        else:
            kind = _MANAGED if known.is_managed else _HOST if known.is_host else _DEVICE
            device = 0
        ctypes.memset(attributes, 0, 24)
        (ctypes.c_int32 * 2).from_address(attributes)[:] = [kind, device]
        seen = address if known is not None else 0
        host = address if kind in (_UNREGISTERED, _HOST, _MANAGED) else 0
        (ctypes.c_uint64 * 2).from_address(attributes + 8)[:] = [seen, host]

    def cudaMemPrefetchAsync(
        self, address: U64, bytes: U64, location: U64, flags: U32, stream: Handle
    ) -> None:
        """Do nothing: memory is where both sides use it."""
        self.driver.cuMemGetAddressRange_v2(address)

    def cudaMemAdvise(self, address: U64, bytes: U64, advice: I32, location: U64) -> None:
        """Do nothing: memory is where both sides use it."""
        self.driver.cuMemGetAddressRange_v2(address)

    # rectangles and boxes -----------------------------------------------------------------------------------

    def cudaMemcpy2D(self, target: int, pitch: int, source: int, source_pitch: int, *rest: int) -> None:
        """Copy a rectangle: width in bytes, height, kind."""
        width, height = rest[:2]
        self.driver.copy_box(
            Box(target, pitch, height), (0, 0, 0), Box(source, source_pitch, height), (0, 0, 0),
            width, height, 1,
        )  # fmt: skip

    def cudaMemcpy2DToArray(self, array: int, x: int, y: int, source: int, pitch: int, *rest: int) -> None:
        """Copy a rectangle to an array: width in bytes, height, kind."""
        width, height = rest[:2]
        target = self.driver.known(array, TexelArray).box()
        self.driver.copy_box(target, (x, y, 0), Box(source, pitch, height), (0, 0, 0), width, height, 1)

    def cudaMemcpy2DFromArray(self, target: int, pitch: int, array: int, x: int, y: int, *rest: int) -> None:
        """Copy a rectangle of an array: width in bytes, height, kind."""
        width, height = rest[:2]
        source = self.driver.known(array, TexelArray).box()
        self.driver.copy_box(Box(target, pitch, height), (0, 0, 0), source, (x, y, 0), width, height, 1)

    def cudaMemcpy2DArrayToArray(
        self, target: Handle, target_x: U64, target_y: U64, source: Handle, source_x: U64, source_y: U64,
        width: U64, height: U64, kind: I32,
    ) -> None:  # fmt: skip
        """Copy a rectangle of an array to another."""
        to, of = (self.driver.known(array, TexelArray).box() for array in (target, source))
        self.driver.copy_box(to, (target_x, target_y, 0), of, (source_x, source_y, 0), width, height, 1)

    def cudaMemcpyToArray(self, array: Handle, x: U64, y: U64, source: U64, bytes: U64, kind: I32) -> None:
        """Copy bytes to an array, from one row to the next."""
        self.driver.cuMemcpy(self.driver.known(array, TexelArray).box().at(x, y, 0), source, bytes)

    def cudaMemcpyFromArray(self, target: U64, array: Handle, x: U64, y: U64, bytes: U64, kind: I32) -> None:
        """Copy bytes of an array, from one row to the next."""
        self.driver.cuMemcpy(target, self.driver.known(array, TexelArray).box().at(x, y, 0), bytes)

    def _side(self, array: int, pitched: Any, at: Any) -> tuple[Box, tuple[int, int, int], int]:
        """Return a side of a copy: its rows, the position in bytes, and the bytes of an element."""
        x, y, z = at
        if array:
            known = self.driver.known(array, TexelArray)
            return known.box(), (x * known.texel_bytes, y, z), known.texel_bytes
        return Box(pitched.start, pitched.pitch, pitched.height), (x, y, z), 1

    def cudaMemcpy3D(self, parameters: Pointer) -> None:
        """Copy a box: its width counts texels if one side is an array, and bytes if none is."""
        asked = _Copy3D.from_address(parameters)
        source, source_at, source_bytes = self._side(asked.source_array, asked.source, asked.source_at)
        target, target_at, target_bytes = self._side(asked.target_array, asked.target, asked.target_at)
        width, height, depth = asked.extent
        size = max(source_bytes, target_bytes)
        self.driver.copy_box(target, target_at, source, source_at, width * size, height, depth)

    def copy_work(self, parameters: int) -> Work:
        """Return the copy of a box as its record is now."""
        return with_copy(self.cudaMemcpy3D, parameters, COPY_BYTES)

    def cudaMemcpy3DAsync(self, parameters: Pointer, stream: Handle) -> None:
        """Copy a box in a stream."""
        self.driver.enqueue(stream, NodeKind.MEMCPY, self.copy_work(parameters))

    def cudaMemset3D(self, pitched: PitchedMemory, value: I32, extent: Extent) -> None:
        """Fill a box with a byte."""
        self.cudaMemset3DAsync(pitched, value, extent, 0)

    def cudaMemset3DAsync(self, pitched: PitchedMemory, value: I32, extent: Extent, stream: Handle) -> None:
        """Fill a box with a byte in a stream."""
        memory = _Pitched.from_address(pitched)
        width, height, depth = (ctypes.c_uint64 * 3).from_address(extent)
        box = Box(memory.start, memory.pitch, memory.height)
        self.driver.enqueue(
            stream, NodeKind.MEMSET, lambda: self.driver.fill_box(box, value, 1, width, height, depth)
        )

    # arrays and textures ------------------------------------------------------------------------------------

    def cudaMallocArray(
        self, format: Pointer, width: U64, height: U64, flags: U32
    ) -> Annotated[Handle, "array"]:
        """Return a new array of one or two dimensions."""
        dtype, channels = _format(format)
        return self.driver.create_array((width, height, 0), dtype, channels, flags)

    def cudaMalloc3DArray(self, format: Pointer, extent: Extent, flags: U32) -> Annotated[Handle, "array"]:
        """Return a new array of up to three dimensions, or with layers."""
        dtype, channels = _format(format)
        width, height, depth = (ctypes.c_uint64 * 3).from_address(extent)
        return self.driver.create_array((width, height, depth), dtype, channels, flags)

    def cudaFreeArray(self, array: Handle) -> None:
        """Forget an array; a null pointer is none."""
        if array:
            self.driver.cuArrayDestroy(array)

    def cudaGetChannelDesc(self, format: Pointer, array: Handle) -> None:
        """Write the channels of an array."""
        known = self.driver.known(array, TexelArray)
        target = _Format.from_address(format)
        bits = 8 * known.texel_bytes // known.channels
        target.bits[:] = [bits if channel < known.channels else 0 for channel in range(4)]
        target.kind = next(kind for kind, letter in _CHANNEL_KINDS.items() if letter == known.dtype[0])

    def cudaArrayGetInfo(self, format: Pointer, extent: Pointer, array: Handle) -> Annotated[U32, "flags", 2]:
        """Write the channels and sizes of an array, and return its flags."""
        known = self.driver.known(array, TexelArray)
        if format:
            self.cudaGetChannelDesc(format, array)
        if extent:
            (ctypes.c_uint64 * 3).from_address(extent)[:] = list(known.sizes)
        return known.flags

    def cudaCreateChannelDesc(self, format: Pointer, x: I32, y: I32, z: I32, w: I32, kind: I32) -> int:
        """Write the channels that a program describes; return where."""
        target = _Format.from_address(format)
        target.bits[:], target.kind = [x, y, z, w], kind
        return format

    def cudaCreateTextureObject(
        self, resource: Pointer, description: Pointer, view: Pointer
    ) -> Annotated[Handle, "texture"]:
        """Return a texture of an array or of memory."""
        texels, channels, flags = self.driver.texels_of(
            resource, lambda: _format(resource + 16), resource + 40
        )
        is_linear_memory = ctypes.c_int32.from_address(resource).value == LINEAR
        asked = _TextureDescription.from_address(description)
        settings = TextureSettings(
            tuple(asked.address),
            asked.filter == 1 and not is_linear_memory,
            asked.read == _NORMALIZED_FLOAT and texels.dtype.kind in "iu",
            bool(asked.is_normalized),
            tuple(asked.border),
            bool(asked.is_seamless),
        )
        return self.driver.texture_of(texels, channels, flags, settings)

    def cudaDestroyTextureObject(self, texture: Handle) -> None:
        """Forget a texture; 0 is none."""
        if texture:
            self.driver.forget_image(texture)

    def cudaDestroySurfaceObject(self, surface: Handle) -> None:
        """Forget a surface; 0 is none."""
        self.cudaDestroyTextureObject(surface)


def _format(place: int) -> tuple[str, int]:
    """Return the NumPy type of a channel, and how many channels a texel has."""
    asked = _Format.from_address(place)
    bits, kind = [bit for bit in asked.bits if bit], _CHANNEL_KINDS.get(asked.kind)
    if kind is None or not bits or len(set(bits)) != 1 or bits[0] not in (8, 16, 32):
        raise DriverError(
            Result.NOT_SUPPORTED, f"texels with channels of {list(asked.bits)} bits are not supported"
        )
    return f"{kind}{bits[0] // 8}", len(bits)
