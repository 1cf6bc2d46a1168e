"""What C knows of the CUDA runtime beyond what `driver/entry_points.py` explains.

Methods of `Runtime` declare entry points as the driver's do. Three more types are passed by value: three
sizes, and two structs, for which a method gets the address. What the driver answers in the same words has no
method here.
"""

from functools import cache
from typing import Annotated

from lanewise.virtual_gpu.driver.driver import Driver
from lanewise.virtual_gpu.driver.entry_points import Parameter
from lanewise.virtual_gpu.driver.graphs import NodeKind

Dim3 = Annotated[tuple[int, int, int], "dim3"]
Extent = Annotated[int, "extent"]
PitchedMemory = Annotated[int, "pitched"]
#: Structs that are passed by value, and their bytes.
STRUCTS = {"extent": 24, "pitched": 32}

#: Entry points whose methods take words as they come.
DECLARATIONS = """
__cudaRegisterFunction(handle fatbin, pointer host, text device, text name, i32 thread_limit, pointer tid, \
pointer bid, pointer block, pointer grid, pointer warp_size)
__cudaRegisterVar(handle fatbin, pointer host, text device, text name, i32 ext, u64 bytes, i32 constant, \
i32 global)
__cudaRegisterManagedVar(handle fatbin, pointer host, text device, text name, i32 ext, u64 bytes, \
i32 constant, i32 global)
cudaMemcpy2D(u64 target, u64 target_pitch, u64 source, u64 source_pitch, u64 width, u64 height, i32 kind)
cudaMemcpy2DToArray(handle array, u64 x, u64 y, u64 source, u64 pitch, u64 width, u64 height, i32 kind)
cudaMemcpy2DFromArray(u64 target, u64 pitch, handle array, u64 x, u64 y, u64 width, u64 height, i32 kind)
cudaGraphAddMemcpyNodeToSymbol(out handle node, handle graph, pointer dependencies, u64 count, \
pointer symbol, u64 source, u64 bytes, u64 offset, i32 kind)
cudaGraphAddMemcpyNodeFromSymbol(out handle node, handle graph, pointer dependencies, u64 count, u64 target, \
pointer symbol, u64 bytes, u64 offset, i32 kind)
"""

#: Entry points that streams have as well, with `Async` behind the name, and what a graph keeps them as.
ALSO_IN_STREAMS = {
    "cudaMemcpy2D": NodeKind.MEMCPY,
    "cudaMemcpy2DToArray": NodeKind.MEMCPY,
    "cudaMemcpy2DFromArray": NodeKind.MEMCPY,
    "cudaMemset2D": NodeKind.MEMSET,
}

#: Entry points that add a node of a kind to a graph, and those that change one of an executable graph.
ADDED_NODES = {
    "cudaGraphAddKernelNode": NodeKind.KERNEL,
    "cudaGraphAddMemcpyNode": NodeKind.MEMCPY,
    "cudaGraphAddMemsetNode": NodeKind.MEMSET,
    "cudaGraphAddMemAllocNode": NodeKind.MEM_ALLOC,
    "cudaGraphAddMemFreeNode": NodeKind.MEM_FREE,
}
SET_NODES = {
    "cudaGraphExecKernelNodeSetParams": NodeKind.KERNEL,
    "cudaGraphExecMemcpyNodeSetParams": NodeKind.MEMCPY,
    "cudaGraphExecMemsetNodeSetParams": NodeKind.MEMSET,
    "cudaGraphExecHostNodeSetParams": NodeKind.HOST,
}

#: Entry points that do nothing, or answer the same to everybody: there is one device, memory is where both
#: sides use it, flags are about waits and caches, and a fatbin is loaded when something of it is used.
CONSTANT_ANSWERS = """
cudaRuntimeGetVersion(out i32 version) = 13000
cudaProfilerStart()
cudaProfilerStop()
cudaCtxResetPersistingL2Cache()
cudaGetDevice(out i32 device) = 0
cudaChooseDevice(out i32 device, pointer properties) = 0
cudaDeviceGetByPCIBusId(out i32 device, text id) = 0
cudaSetValidDevices(pointer devices, i32 count)
cudaSetDeviceFlags(u32 flags)
cudaGetDeviceFlags(out u32 flags) = 8
cudaStreamAttachMemAsync(handle stream, u64 address, u64 bytes, u32 flags)
cudaMemPoolSetAccess(handle pool, pointer access, u64 count)
cudaMemPoolGetAccess(out i32 access, handle pool, pointer location) = 3
cudaOccupancyMaxPotentialClusterSize(out i32 size, pointer function, pointer config) = 8
cudaDeviceGraphMemTrim(i32 device)
cudaDeviceSetGraphMemAttribute(i32 device, i32 attribute, pointer value)
__cudaRegisterFatBinaryEnd(handle fatbin)
__cudaUnregisterFatBinary(handle fatbin)
"""

#: Entry points that take and answer the same as the driver's of that name, cu… in its newest version.
_SAME = """
cudaDriverGetVersion cudaDeviceGetAttribute cudaDeviceGetPCIBusId cudaDeviceCanAccessPeer
cudaDeviceGetDefaultMemPool cudaDeviceGetMemPool cudaMemGetInfo cudaMemPoolCreate cudaMemPoolDestroy
cudaMemPoolGetAttribute cudaMemPoolSetAttribute cudaMemPoolTrimTo cudaStreamCreateWithPriority
cudaStreamDestroy cudaStreamSynchronize cudaStreamQuery cudaStreamWaitEvent cudaStreamGetFlags
cudaStreamGetPriority cudaStreamIsCapturing cudaLaunchHostFunc cudaStreamBeginCapture
cudaStreamBeginCaptureToGraph cudaStreamEndCapture cudaStreamGetCaptureInfo cudaStreamGetCaptureInfo_v3
cudaThreadExchangeStreamCaptureMode cudaGraphCreate cudaGraphDestroy cudaGraphClone cudaGraphNodeFindInClone
cudaGraphAddEmptyNode cudaGraphAddChildGraphNode cudaGraphChildGraphNodeGetGraph cudaGraphAddEventRecordNode
cudaGraphAddEventWaitNode cudaGraphAddHostNode cudaGraphAddDependencies cudaGraphDestroyNode
cudaGraphNodeGetType cudaGraphGetNodes cudaGraphGetRootNodes cudaGraphInstantiateWithFlags
cudaGraphInstantiateWithParams cudaGraphExecDestroy cudaGraphUpload cudaGraphLaunch cudaGraphNodeSetEnabled
cudaGraphNodeGetEnabled cudaGraphExecUpdate cudaEventDestroy cudaEventRecord cudaEventRecordWithFlags
cudaEventElapsedTime cudaEventQuery cudaEventSynchronize cudaLibraryLoadData cudaLibraryUnload
cudaLibraryGetKernel cudaLibraryGetGlobal
"""
#: Those that take the address of a kernel's host function where the driver's takes a handle.
OF_KERNELS = """
cudaFuncSetAttribute cudaFuncSetCacheConfig cudaFuncSetSharedMemConfig cudaFuncGetName cudaFuncGetParamInfo
cudaOccupancyMaxActiveBlocksPerMultiprocessor cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags
cudaOccupancyAvailableDynamicSMemPerBlock
"""
#: Entry points that the driver answers under another name.
_OTHERWISE_NAMED = {
    "cudaGetDeviceCount": "cuDeviceGetCount",
    "cudaDeviceSynchronize": "cuCtxSynchronize",
    "cudaThreadSynchronize": "cuCtxSynchronize",
    "cudaDeviceGetLimit": "cuCtxGetLimit",
    "cudaDeviceSetLimit": "cuCtxSetLimit",
    "cudaDeviceGetCacheConfig": "cuCtxGetCacheConfig",
    "cudaDeviceSetCacheConfig": "cuCtxSetCacheConfig",
    "cudaDeviceGetStreamPriorityRange": "cuCtxGetStreamPriorityRange",
    "cudaHostAlloc": "cuMemHostAlloc",
    "cudaHostRegister": "cuMemHostRegister_v2",
    "cudaHostUnregister": "cuMemHostUnregister",
    "cudaHostGetDevicePointer": "cuMemHostGetDevicePointer_v2",
    "cudaFree": "cuMemFree_v2",
    "cudaFreeHost": "cuMemFreeHost",
    "cudaMallocManaged": "cuMemAllocManaged",
    "cudaMemset2D": "cuMemsetD2D8_v2",
    "cudaGraphInstantiate": "cuGraphInstantiateWithFlags",
    "cudaCreateSurfaceObject": "cuSurfObjectCreate",
    "cudaMallocAsync": "cuMemAllocAsync",
    "cudaMallocFromPoolAsync": "cuMemAllocFromPoolAsync",
    "cudaFreeAsync": "cuMemFreeAsync",
    "cudaStreamCreateWithFlags": "cuStreamCreate",
    "cudaEventCreateWithFlags": "cuEventCreate",
}

#: Entry points that exist and answer that they are not supported.
UNSUPPORTED = """
cudaArrayGetMemoryRequirements cudaArrayGetPlane cudaArrayGetSparseProperties cudaDestroyExternalMemory
cudaDestroyExternalSemaphore cudaDeviceFlushGPUDirectRDMAWrites cudaDeviceGetHostAtomicCapabilities
cudaDeviceGetNvSciSyncAttributes cudaDeviceGetP2PAtomicCapabilities cudaDeviceGetTexture1DLinearMaxWidth
cudaDeviceRegisterAsyncNotification cudaDeviceSetMemPool cudaDeviceUnregisterAsyncNotification
cudaExternalMemoryGetMappedBuffer cudaExternalMemoryGetMappedMipmappedArray cudaFreeMipmappedArray
cudaGetExportTable cudaGetMipmappedArrayLevel cudaGetSurfaceObjectResourceDesc
cudaGetTextureObjectResourceDesc cudaGetTextureObjectResourceViewDesc cudaGetTextureObjectTextureDesc
cudaGraphAddExternalSemaphoresSignalNode cudaGraphAddExternalSemaphoresWaitNode
cudaGraphConditionalHandleCreate cudaGraphDebugDotPrint cudaGraphEventRecordNodeGetEvent
cudaGraphEventRecordNodeSetEvent cudaGraphEventWaitNodeGetEvent cudaGraphEventWaitNodeSetEvent
cudaGraphExecChildGraphNodeSetParams cudaGraphExecEventRecordNodeSetEvent cudaGraphExecEventWaitNodeSetEvent
cudaGraphExecGetFlags cudaGraphExecMemcpyNodeSetParamsFromSymbol cudaGraphExecMemcpyNodeSetParamsToSymbol
cudaGraphExecNodeSetParams cudaGraphHostNodeGetParams cudaGraphHostNodeSetParams
cudaGraphKernelNodeCopyAttributes cudaGraphKernelNodeGetAttribute cudaGraphKernelNodeGetParams
cudaGraphKernelNodeSetAttribute cudaGraphMemAllocNodeGetParams cudaGraphMemFreeNodeGetParams
cudaGraphMemcpyNodeGetParams cudaGraphMemcpyNodeSetParams cudaGraphMemcpyNodeSetParams1D
cudaGraphMemcpyNodeSetParamsFromSymbol cudaGraphMemcpyNodeSetParamsToSymbol cudaGraphMemsetNodeGetParams
cudaGraphMemsetNodeSetParams cudaGraphNodeGetDependentNodes cudaGraphNodeSetParams
cudaGraphReleaseUserObject cudaGraphRemoveDependencies cudaGraphRetainUserObject cudaGraphicsMapResources
cudaGraphicsResourceGetMappedMipmappedArray cudaGraphicsResourceGetMappedPointer
cudaGraphicsResourceSetMapFlags cudaGraphicsSubResourceGetMappedArray cudaGraphicsUnmapResources
cudaGraphicsUnregisterResource cudaImportExternalMemory cudaImportExternalSemaphore cudaIpcCloseMemHandle
cudaIpcGetEventHandle cudaIpcGetMemHandle cudaIpcOpenEventHandle cudaIpcOpenMemHandle
cudaKernelSetAttributeForDevice cudaLibraryEnumerateKernels cudaLibraryGetKernelCount cudaLibraryGetManaged
cudaLibraryGetUnifiedFunction cudaLibraryLoadFromFile cudaLogsCurrent cudaLogsDumpToFile
cudaLogsDumpToMemory cudaLogsRegisterCallback cudaLogsUnregisterCallback cudaMallocMipmappedArray
cudaMemDiscardAndPrefetchBatchAsync cudaMemDiscardBatchAsync cudaMemGetDefaultMemPool cudaMemGetMemPool
cudaMemPoolExportPointer cudaMemPoolExportToShareableHandle cudaMemPoolImportFromShareableHandle
cudaMemPoolImportPointer cudaMemPrefetchBatchAsync cudaMemRangeGetAttribute cudaMemRangeGetAttributes
cudaMemSetMemPool cudaMemcpy3DBatchAsync cudaMemcpy3DPeer cudaMemcpy3DPeerAsync cudaMemcpyArrayToArray
cudaMemcpyBatchAsync cudaMemcpyFromArrayAsync cudaMemcpyToArrayAsync cudaMipmappedArrayGetMemoryRequirements
cudaMipmappedArrayGetSparseProperties cudaSignalExternalSemaphoresAsync cudaStreamCopyAttributes
cudaStreamGetAttribute cudaStreamUpdateCaptureDependencies cudaUserObjectCreate cudaUserObjectRelease
cudaUserObjectRetain cudaWaitExternalSemaphoresAsync
"""
#: What is added to the name of an entry point if the default stream is that of the thread.
PER_THREAD = ("_ptsz", "_ptds")


@cache
def driver_names() -> dict[str, str]:
    """Return the entry points that the driver answers in the same words, with its names for them.

    >>> driver_names()["cudaStreamDestroy"], driver_names()["cudaFree"]
    ('cuStreamDestroy_v2', 'cuMemFree_v2')
    """
    newest = {
        name: f"cu{name.removeprefix('cuda')}{version}"
        for name in (_SAME + OF_KERNELS).split()
        for version in ("", "_v2", "_v3")
        if hasattr(Driver, f"cu{name.removeprefix('cuda')}{version}")
    }
    return newest | _OTHERWISE_NAMED


def plain_name(name: str) -> str:
    """Return the name of an entry point without the mark of a thread's own default stream.

    >>> plain_name("cudaMemcpyAsync_ptsz")
    'cudaMemcpyAsync'
    """
    for ending in PER_THREAD:
        name = name.removesuffix(ending)
    return name


def words(
    parameters: tuple[Parameter, ...], registers: list[int], stack: int, is_by_reference: bool
) -> list[int]:
    """Return a word for each parameter: what a register or the stack has, or the address of a struct.

    A `dim3` becomes one number of 96 bits. `is_by_reference` says how structs of more than 16 bytes are
    passed: by their address, as Arm does, or on the stack.
    """
    import ctypes

    values: list[int] = []
    free = list(registers)
    for parameter in parameters:
        size = STRUCTS.get(parameter.type)
        if size is not None and not is_by_reference:
            values.append(stack)
            stack += size
            continue
        count = 2 if parameter.type == "dim3" else 1
        if len(free) >= count:
            own, free = free[:count], free[count:]
        else:
            own = list((ctypes.c_uint64 * count).from_address(stack))
            stack += 8 * count
        values.append(own[0] if count == 1 else own[0] | (own[1] & 0xFFFFFFFF) << 64)
    return values
