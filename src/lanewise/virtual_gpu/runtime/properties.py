"""The struct cudaDeviceProp of CUDA 13 and of CUDA 12, filled from the driver's attributes."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lanewise.virtual_gpu.driver import Driver

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
    from lanewise.virtual_gpu.driver.attributes import device_attributes

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
