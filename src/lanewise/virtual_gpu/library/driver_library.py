"""The library with the driver's name, loaded into this process before a program asks for it.

It exports the declared entry points, and those that are not supported."""

import ctypes
import re
from functools import cache

from lanewise.virtual_gpu.driver.driver import Driver, entry_points
from lanewise.virtual_gpu.driver.results import Result
from lanewise.virtual_gpu.library.stand_in import Arguments, StandIn

#: The other entry points of CUDA 13's driver, without `cu` before their names; at the end old ones. Those
#: that are declared in a newer version are exported without one as well.
_OTHERS = """
Array3DGetDescriptor Array3DGetDescriptor_v2 ArrayGetDescriptor ArrayGetDescriptor_v2
ArrayGetMemoryRequirements ArrayGetPlane ArrayGetSparseProperties CheckpointProcessCheckpoint
CheckpointProcessGetRestoreThreadId CheckpointProcessGetState CheckpointProcessLock CheckpointProcessRestore
CheckpointProcessUnlock CoredumpGetAttribute CoredumpGetAttributeGlobal CoredumpSetAttribute
CoredumpSetAttributeGlobal CtxDisablePeerAccess CtxEnablePeerAccess CtxFromGreenCtx CtxGetDevResource
CtxGetDevice_v2 CtxGetExecAffinity CtxRecordEvent CtxResetPersistingL2Cache CtxSetFlags CtxSynchronize_v2
CtxWaitEvent DestroyExternalMemory DestroyExternalSemaphore DevResourceGenerateDesc DevSmResourceSplitByCount
DeviceGetByPCIBusId DeviceGetDevResource DeviceGetExecAffinitySupport DeviceGetGraphMemAttribute
DeviceGetHostAtomicCapabilities DeviceGetLuid DeviceGetNvSciSyncAttributes DeviceGetP2PAtomicCapabilities
DeviceGetP2PAttribute DeviceGetTexture1DLinearMaxWidth DeviceGraphMemTrim DeviceRegisterAsyncNotification
DeviceSetGraphMemAttribute DeviceSetMemPool DeviceUnregisterAsyncNotification ExternalMemoryGetMappedBuffer
ExternalMemoryGetMappedMipmappedArray FlushGPUDirectRDMAWrites GetExportTable GraphAddBatchMemOpNode
GraphAddExternalSemaphoresSignalNode GraphAddExternalSemaphoresWaitNode GraphAddMemAllocNode
GraphAddMemFreeNode GraphAddMemcpyNode GraphAddNode GraphAddNode_v2 GraphBatchMemOpNodeGetParams
GraphBatchMemOpNodeSetParams GraphConditionalHandleCreate GraphDebugDotPrint GraphEventRecordNodeGetEvent
GraphEventRecordNodeSetEvent GraphEventWaitNodeGetEvent GraphEventWaitNodeSetEvent
GraphExecBatchMemOpNodeSetParams GraphExecChildGraphNodeSetParams GraphExecEventRecordNodeSetEvent
GraphExecEventWaitNodeSetEvent GraphExecExternalSemaphoresSignalNodeSetParams
GraphExecExternalSemaphoresWaitNodeSetParams GraphExecGetFlags GraphExecHostNodeSetParams
GraphExecMemcpyNodeSetParams GraphExecMemsetNodeSetParams GraphExecNodeSetParams
GraphExternalSemaphoresSignalNodeGetParams GraphExternalSemaphoresSignalNodeSetParams
GraphExternalSemaphoresWaitNodeGetParams GraphExternalSemaphoresWaitNodeSetParams GraphGetEdges
GraphGetEdges_v2 GraphHostNodeGetParams GraphHostNodeSetParams GraphInstantiate GraphKernelNodeCopyAttributes
GraphKernelNodeGetAttribute GraphKernelNodeGetParams GraphKernelNodeGetParams_v2 GraphKernelNodeSetAttribute
GraphMemAllocNodeGetParams GraphMemFreeNodeGetParams GraphMemcpyNodeGetParams GraphMemcpyNodeSetParams
GraphMemsetNodeGetParams GraphMemsetNodeSetParams GraphNodeGetDependencies_v2 GraphNodeGetDependentNodes
GraphNodeGetDependentNodes_v2 GraphNodeSetParams GraphReleaseUserObject GraphRemoveDependencies
GraphRemoveDependencies_v2 GraphRetainUserObject GraphicsMapResources GraphicsResourceGetMappedMipmappedArray
GraphicsResourceGetMappedPointer GraphicsResourceGetMappedPointer_v2 GraphicsResourceSetMapFlags
GraphicsResourceSetMapFlags_v2 GraphicsSubResourceGetMappedArray GraphicsUnmapResources
GraphicsUnregisterResource GreenCtxCreate GreenCtxDestroy GreenCtxGetDevResource GreenCtxGetId
GreenCtxRecordEvent GreenCtxStreamCreate GreenCtxWaitEvent ImportExternalMemory ImportExternalSemaphore
IpcCloseMemHandle IpcGetEventHandle IpcGetMemHandle IpcOpenEventHandle IpcOpenMemHandle IpcOpenMemHandle_v2
KernelGetLibrary KernelGetName KernelGetParamInfo KernelSetCacheConfig LibraryGetManaged
LibraryGetUnifiedFunction LibraryLoadFromFile LogsCurrent LogsDumpToFile LogsDumpToMemory LogsRegisterCallback
LogsUnregisterCallback MemAdvise_v2 MemBatchDecompressAsync MemDiscardAndPrefetchBatchAsync
MemDiscardBatchAsync MemExportToShareableHandle MemGetAccess MemGetDefaultMemPool MemGetHandleForAddressRange
MemGetMemPool MemHostGetFlags MemImportFromShareableHandle MemMapArrayAsync MemPoolExportPointer
MemPoolExportToShareableHandle MemPoolGetAccess MemPoolImportFromShareableHandle MemPoolImportPointer
MemPoolSetAccess MemPrefetchAsync_v2 MemPrefetchBatchAsync MemRangeGetAttribute MemRangeGetAttributes
MemRetainAllocationHandle MemSetMemPool Memcpy3DBatchAsync Memcpy3DBatchAsync_v2 Memcpy3DPeer
Memcpy3DPeerAsync MemcpyAtoA MemcpyAtoA_v2 MemcpyAtoD MemcpyAtoD_v2 MemcpyAtoH MemcpyAtoHAsync
MemcpyAtoHAsync_v2 MemcpyAtoH_v2 MemcpyBatchAsync MemcpyBatchAsync_v2 MemcpyDtoA MemcpyDtoA_v2 MemcpyHtoA
MemcpyHtoAAsync MemcpyHtoAAsync_v2 MemcpyHtoA_v2 MemcpyPeer MemcpyPeerAsync MemsetD2D16Async MemsetD2D32Async
MemsetD2D8Async MipmappedArrayCreate MipmappedArrayDestroy MipmappedArrayGetLevel
MipmappedArrayGetMemoryRequirements MipmappedArrayGetSparseProperties MulticastAddDevice MulticastBindAddr
MulticastBindMem MulticastCreate MulticastGetGranularity MulticastUnbind OccupancyMaxPotentialClusterSize
PointerSetAttribute SignalExternalSemaphoresAsync StreamAddCallback StreamAttachMemAsync StreamBatchMemOp
StreamBatchMemOp_v2 StreamCopyAttributes StreamGetAttribute StreamGetCtx_v2 StreamGetDevice StreamGetGreenCtx
StreamGetId StreamSetAttribute StreamUpdateCaptureDependencies StreamUpdateCaptureDependencies_v2
StreamWaitValue32 StreamWaitValue32_v2 StreamWaitValue64 StreamWaitValue64_v2 StreamWriteValue32
StreamWriteValue32_v2 StreamWriteValue64 StreamWriteValue64_v2 SurfObjectGetResourceDesc
TensorMapEncodeIm2colWide TexObjectGetResourceDesc TexObjectGetResourceViewDesc TexObjectGetTextureDesc
UserObjectCreate UserObjectRelease UserObjectRetain WaitExternalSemaphoresAsync CtxAttach CtxDetach
CtxGetSharedMemConfig CtxSetSharedMemConfig DeviceGetProperties FuncSetBlockShape FuncSetSharedSize Launch
LaunchGrid LaunchGridAsync ModuleGetSurfRef ModuleGetTexRef ParamSetSize ParamSetTexRef ParamSetf ParamSeti
ParamSetv ProfilerStart ProfilerStop SurfRefGetArray SurfRefSetArray TexRefCreate TexRefDestroy
TexRefGetAddress TexRefGetAddressMode TexRefGetAddress_v2 TexRefGetArray TexRefGetFilterMode TexRefGetFlags
TexRefGetFormat TexRefSetAddress TexRefSetAddress2D TexRefSetAddress2D_v2 TexRefSetAddress2D_v3
TexRefSetAddressMode TexRefSetAddress_v2 TexRefSetArray TexRefSetFilterMode TexRefSetFlags TexRefSetFormat
"""
#: Entry points that have several versions, by the version of CUDA from which on a program asks for each.
_VERSIONS = {"cuCtxCreate": ((12050, "cuCtxCreate_v4"), (3020, "cuCtxCreate_v2"))}


@cache
def exported_names() -> tuple[str, ...]:
    """Return the names of all entry points; the place of a name is the number that its code passes."""
    others = (f"cu{name}" for name in _OTHERS.split())
    old = (re.sub(r"_v\d$", "", name) for name in entry_points())
    return tuple(dict.fromkeys((*entry_points(), *others, *old)))


@cache
def exported_name(name: str, version: int) -> str | None:
    """Return the exported name for one that a program asks cuGetProcAddress for; None if there is none.

    >>> exported_name("cuMemAlloc", 3020), exported_name("cuInit", 2000), exported_name("cuNone", 12000)
    ('cuMemAlloc_v2', 'cuInit', None)
    """
    for since, exact in _VERSIONS.get(name, ()):
        if version >= since:
            return exact
    names = set(exported_names())
    candidates = [f"{name}_v{number}" for number in range(2, 6)] + [name]
    known = [candidate for candidate in candidates if candidate in entry_points()] + [
        candidate for candidate in candidates if candidate in names
    ]
    return known[0] if known else None


SONAME = "libcuda.so.1"
#: What cuGetProcAddress_v2 writes to its last argument: that it succeeded, that it did not find the symbol.
_FOUND, _MISSING = 0, 1


class DriverLibrary(StandIn):
    """The library of this process, connected to a driver until it is closed."""

    def __init__(self, driver: Driver) -> None:
        super().__init__(SONAME, exported_names(), self._driver_call, is_global=True)
        self.driver = driver
        driver.entry_point = self.entry_point

    def _driver_call(self, name: str, arguments: Arguments) -> int:
        declared = entry_points().get(name)
        raw = arguments(len(declared.parameters) if declared is not None else 0)
        if name.startswith("cuGetProcAddress"):
            return self._address_asked(raw)
        return int(self.driver.call(name, raw))

    def _address_asked(self, raw: list[int]) -> int:
        """Write the address of an entry point that a program asks for by name."""
        symbol, target, version, _, *status = raw
        asked = ctypes.string_at(symbol).decode(errors="replace")
        place = self.entry_point(asked, ctypes.c_int32(version).value)
        ctypes.c_uint64.from_address(target).value = place
        if status and status[0]:
            ctypes.c_int32.from_address(status[0]).value = _FOUND if place else _MISSING
        return int(Result.SUCCESS if place else Result.NOT_FOUND)

    def entry_point(self, symbol: str, version: int) -> int:
        """Return the address of an entry point by its name and version; 0 if there is none."""
        name = exported_name(symbol, version)
        return 0 if name is None else self.address(name)
