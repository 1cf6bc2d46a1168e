"""The entry points of the CUDA runtime, declared as `driver/entry_points.py` declares those of the driver.

Three more types are passed by value: `dim3` are three sizes, `extent` and `pitched` are structs, for which a
method gets the address. An entry point that is the driver's under another name stands in `_SAME`.
"""

from functools import cache

from lanewise.virtual_gpu.driver.entry_points import EntryPoint, Parameter, declared_in
from lanewise.virtual_gpu.driver.entry_points import entry_points as driver_entry_points

#: Structs that are passed by value, and their bytes.
STRUCTS = {"extent": 24, "pitched": 32}

_DECLARATIONS = """
__cudaRegisterFatBinary(pointer image)
__cudaRegisterFatBinaryEnd(handle fatbin)
__cudaUnregisterFatBinary(handle fatbin)
__cudaRegisterFunction(handle fatbin, pointer host, text device, text name, i32 thread_limit, pointer tid, \
pointer bid, pointer block, pointer grid, pointer warp_size)
__cudaRegisterVar(handle fatbin, pointer host, text device, text name, i32 ext, u64 bytes, i32 constant, \
i32 global)
__cudaRegisterManagedVar(handle fatbin, pointer host, text device, text name, i32 ext, u64 bytes, \
i32 constant, i32 global)
__cudaInitModule(handle fatbin)
__cudaPushCallConfiguration(dim3 grid, dim3 block, u64 shared_bytes, handle stream)
__cudaPopCallConfiguration(pointer grid, pointer block, out u64 shared_bytes, out handle stream)
__cudaGetKernel(out handle kernel, pointer function)
__cudaLaunchKernel(handle kernel, dim3 grid, dim3 block, pointer parameters, u64 shared_bytes, handle stream)

cudaGetLastError()
cudaPeekAtLastError()
cudaGetErrorName(i32 error)
cudaGetErrorString(i32 error)
cudaRuntimeGetVersion(out i32 version)
cudaProfilerStart()
cudaProfilerStop()

cudaSetDevice(i32 device)
cudaGetDevice(out i32 device)
cudaInitDevice(i32 device, u32 device_flags, u32 flags)
cudaChooseDevice(out i32 device, pointer properties)
cudaSetValidDevices(pointer devices, i32 count)
cudaSetDeviceFlags(u32 flags)
cudaGetDeviceFlags(out u32 flags)
cudaGetDeviceProperties(pointer properties, i32 device)
cudaGetDeviceProperties_v2(pointer properties, i32 device)
cudaDeviceReset()
cudaDeviceEnablePeerAccess(i32 peer, u32 flags)
cudaDeviceDisablePeerAccess(i32 peer)
cudaDeviceGetP2PAttribute(out i32 value, i32 attribute, i32 source, i32 target)
cudaDeviceGetByPCIBusId(out i32 device, text id)
cudaCtxResetPersistingL2Cache()

cudaMalloc(out u64 address, u64 bytes)
cudaMallocHost(out u64 address, u64 bytes)
cudaMallocManaged(out u64 address, u64 bytes, u32 flags)
cudaMallocPitch(out u64 address, out u64 pitch, u64 width, u64 height)
cudaMalloc3D(pointer pitched, extent extent)
cudaHostGetFlags(out u32 flags, u64 address)
cudaFreeHost(u64 address)
cudaMemcpy(u64 target, u64 source, u64 bytes, i32 kind)
cudaMemcpyAsync(u64 target, u64 source, u64 bytes, i32 kind, handle stream)
cudaMemcpyPeer(u64 target, i32 target_device, u64 source, i32 source_device, u64 bytes)
cudaMemcpyPeerAsync(u64 target, i32 target_device, u64 source, i32 source_device, u64 bytes, handle stream)
cudaMemcpyToSymbol(pointer symbol, u64 source, u64 bytes, u64 offset, i32 kind)
cudaMemcpyFromSymbol(u64 target, pointer symbol, u64 bytes, u64 offset, i32 kind)
cudaMemcpyToSymbolAsync(pointer symbol, u64 source, u64 bytes, u64 offset, i32 kind, handle stream)
cudaMemcpyFromSymbolAsync(u64 target, pointer symbol, u64 bytes, u64 offset, i32 kind, handle stream)
cudaMemcpy2D(u64 target, u64 target_pitch, u64 source, u64 source_pitch, u64 width, u64 height, i32 kind)
cudaMemcpy2DAsync(u64 target, u64 target_pitch, u64 source, u64 source_pitch, u64 width, u64 height, \
i32 kind, handle stream)
cudaMemcpy2DToArray(handle array, u64 x, u64 y, u64 source, u64 pitch, u64 width, u64 height, i32 kind)
cudaMemcpy2DToArrayAsync(handle array, u64 x, u64 y, u64 source, u64 pitch, u64 width, u64 height, \
i32 kind, handle stream)
cudaMemcpy2DFromArray(u64 target, u64 pitch, handle array, u64 x, u64 y, u64 width, u64 height, i32 kind)
cudaMemcpy2DFromArrayAsync(u64 target, u64 pitch, handle array, u64 x, u64 y, u64 width, u64 height, \
i32 kind, handle stream)
cudaMemcpy2DArrayToArray(handle target, u64 target_x, u64 target_y, handle source, u64 source_x, \
u64 source_y, u64 width, u64 height, i32 kind)
cudaMemcpyToArray(handle array, u64 x, u64 y, u64 source, u64 bytes, i32 kind)
cudaMemcpyFromArray(u64 target, handle array, u64 x, u64 y, u64 bytes, i32 kind)
cudaMemcpy3D(pointer parameters)
cudaMemcpy3DAsync(pointer parameters, handle stream)
cudaMemset(u64 address, i32 value, u64 bytes)
cudaMemsetAsync(u64 address, i32 value, u64 bytes, handle stream)
cudaMemset2D(u64 address, u64 pitch, i32 value, u64 width, u64 height)
cudaMemset2DAsync(u64 address, u64 pitch, i32 value, u64 width, u64 height, handle stream)
cudaMemset3D(pitched pitched, i32 value, extent extent)
cudaMemset3DAsync(pitched pitched, i32 value, extent extent, handle stream)
cudaGetSymbolAddress(out u64 address, pointer symbol)
cudaGetSymbolSize(out u64 bytes, pointer symbol)
cudaPointerGetAttributes(pointer attributes, u64 address)
cudaMemPrefetchAsync(u64 address, u64 bytes, u64 location, u32 flags, handle stream)
cudaMemAdvise(u64 address, u64 bytes, i32 advice, u64 location)
cudaMemPoolSetAccess(handle pool, pointer access, u64 count)
cudaMemPoolGetAccess(out i32 access, handle pool, pointer location)
cudaStreamAttachMemAsync(handle stream, u64 address, u64 bytes, u32 flags)

cudaMallocArray(out handle array, pointer format, u64 width, u64 height, u32 flags)
cudaMalloc3DArray(out handle array, pointer format, extent extent, u32 flags)
cudaFreeArray(handle array)
cudaArrayGetInfo(pointer format, pointer extent, out u32 flags, handle array)
cudaGetChannelDesc(pointer format, handle array)
cudaCreateChannelDesc(pointer format, i32 x, i32 y, i32 z, i32 w, i32 kind)
cudaCreateTextureObject(out handle texture, pointer resource, pointer description, pointer view)
cudaDestroyTextureObject(handle texture)
cudaCreateSurfaceObject(out handle surface, pointer resource)
cudaDestroySurfaceObject(handle surface)

cudaStreamCreate(out handle stream)
cudaStreamAddCallback(handle stream, pointer function, pointer data, u32 flags)
cudaStreamGetId(handle stream, out u64 id)
cudaStreamGetDevice(handle stream, out i32 device)
cudaStreamSetAttribute(handle stream, i32 attribute, pointer value)
cudaEventCreate(out handle event)

cudaGraphInstantiate(out handle executable, handle graph, u64 flags)
cudaGraphGetEdges(handle graph, pointer before, pointer after, pointer data, pointer count)
cudaGraphNodeGetDependencies(handle node, pointer nodes, pointer data, pointer count)
cudaGraphAddKernelNode(out handle node, handle graph, pointer dependencies, u64 count, pointer parameters)
cudaGraphKernelNodeSetParams(handle node, pointer parameters)
cudaGraphExecKernelNodeSetParams(handle executable, handle node, pointer parameters)
cudaGraphAddMemcpyNode(out handle node, handle graph, pointer dependencies, u64 count, pointer parameters)
cudaGraphExecMemcpyNodeSetParams(handle executable, handle node, pointer parameters)
cudaGraphAddMemcpyNode1D(out handle node, handle graph, pointer dependencies, u64 count, u64 target, \
u64 source, u64 bytes, i32 kind)
cudaGraphExecMemcpyNodeSetParams1D(handle executable, handle node, u64 target, u64 source, u64 bytes, \
i32 kind)
cudaGraphAddMemcpyNodeToSymbol(out handle node, handle graph, pointer dependencies, u64 count, \
pointer symbol, u64 source, u64 bytes, u64 offset, i32 kind)
cudaGraphAddMemcpyNodeFromSymbol(out handle node, handle graph, pointer dependencies, u64 count, u64 target, \
pointer symbol, u64 bytes, u64 offset, i32 kind)
cudaGraphAddMemsetNode(out handle node, handle graph, pointer dependencies, u64 count, pointer parameters)
cudaGraphExecMemsetNodeSetParams(handle executable, handle node, pointer parameters)
cudaGraphExecHostNodeSetParams(handle executable, handle node, pointer parameters)
cudaGraphAddMemAllocNode(out handle node, handle graph, pointer dependencies, u64 count, pointer parameters)
cudaGraphAddMemFreeNode(out handle node, handle graph, pointer dependencies, u64 count, u64 address)
cudaGraphAddNode(out handle node, handle graph, pointer dependencies, pointer data, u64 count, \
pointer parameters)
cudaDeviceGraphMemTrim(i32 device)
cudaDeviceGetGraphMemAttribute(i32 device, i32 attribute, pointer value)
cudaDeviceSetGraphMemAttribute(i32 device, i32 attribute, pointer value)

cudaLaunchKernel(pointer function, dim3 grid, dim3 block, pointer parameters, u64 shared_bytes, \
handle stream)
cudaLaunchCooperativeKernel(pointer function, dim3 grid, dim3 block, pointer parameters, u64 shared_bytes, \
handle stream)
cudaLaunchKernelExC(pointer config, pointer function, pointer parameters)
cudaFuncGetAttributes(pointer attributes, pointer function)
cudaFuncSetAttribute(pointer function, i32 attribute, i32 value)
cudaFuncSetCacheConfig(pointer function, i32 config)
cudaFuncSetSharedMemConfig(pointer function, i32 config)
cudaFuncGetName(out pointer name, pointer function)
cudaFuncGetParamInfo(pointer function, u64 index, out u64 offset, out u64 bytes)
cudaGetFuncBySymbol(out handle function, pointer symbol)
cudaGetKernel(out handle kernel, pointer function)
cudaOccupancyMaxActiveBlocksPerMultiprocessor(out i32 blocks, pointer function, i32 threads, u64 shared_bytes)
cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(out i32 blocks, pointer function, i32 threads, \
u64 shared_bytes, u32 flags)
cudaOccupancyAvailableDynamicSMemPerBlock(out u64 bytes, pointer function, i32 blocks, i32 threads)
cudaOccupancyMaxPotentialClusterSize(out i32 size, pointer function, pointer config)
cudaOccupancyMaxActiveClusters(out i32 clusters, pointer function, pointer config)
cudaGetDriverEntryPoint(text symbol, out pointer function, u64 flags, pointer status)
cudaGetDriverEntryPointByVersion(text symbol, out pointer function, u32 version, u64 flags, pointer status)
"""

#: Entry points that take and answer the same as one of the driver's.
_SAME = {
    "cudaDriverGetVersion": "cuDriverGetVersion",
    "cudaGetDeviceCount": "cuDeviceGetCount",
    "cudaDeviceGetAttribute": "cuDeviceGetAttribute",
    "cudaDeviceGetPCIBusId": "cuDeviceGetPCIBusId",
    "cudaDeviceCanAccessPeer": "cuDeviceCanAccessPeer",
    "cudaDeviceGetDefaultMemPool": "cuDeviceGetDefaultMemPool",
    "cudaDeviceGetMemPool": "cuDeviceGetMemPool",
    "cudaDeviceSynchronize": "cuCtxSynchronize",
    "cudaThreadSynchronize": "cuCtxSynchronize",
    "cudaDeviceGetLimit": "cuCtxGetLimit",
    "cudaDeviceSetLimit": "cuCtxSetLimit",
    "cudaDeviceGetCacheConfig": "cuCtxGetCacheConfig",
    "cudaDeviceSetCacheConfig": "cuCtxSetCacheConfig",
    "cudaDeviceGetStreamPriorityRange": "cuCtxGetStreamPriorityRange",
    "cudaMemGetInfo": "cuMemGetInfo_v2",
    "cudaHostAlloc": "cuMemHostAlloc",
    "cudaHostRegister": "cuMemHostRegister_v2",
    "cudaHostUnregister": "cuMemHostUnregister",
    "cudaHostGetDevicePointer": "cuMemHostGetDevicePointer_v2",
    "cudaFree": "cuMemFree_v2",
    "cudaMallocAsync": "cuMemAllocAsync",
    "cudaMallocFromPoolAsync": "cuMemAllocFromPoolAsync",
    "cudaFreeAsync": "cuMemFreeAsync",
    "cudaMemPoolCreate": "cuMemPoolCreate",
    "cudaMemPoolDestroy": "cuMemPoolDestroy",
    "cudaMemPoolGetAttribute": "cuMemPoolGetAttribute",
    "cudaMemPoolSetAttribute": "cuMemPoolSetAttribute",
    "cudaMemPoolTrimTo": "cuMemPoolTrimTo",
    "cudaStreamCreateWithFlags": "cuStreamCreate",
    "cudaStreamCreateWithPriority": "cuStreamCreateWithPriority",
    "cudaStreamDestroy": "cuStreamDestroy_v2",
    "cudaStreamSynchronize": "cuStreamSynchronize",
    "cudaStreamQuery": "cuStreamQuery",
    "cudaStreamWaitEvent": "cuStreamWaitEvent",
    "cudaStreamGetFlags": "cuStreamGetFlags",
    "cudaStreamGetPriority": "cuStreamGetPriority",
    "cudaStreamIsCapturing": "cuStreamIsCapturing",
    "cudaLaunchHostFunc": "cuLaunchHostFunc",
    "cudaStreamBeginCapture": "cuStreamBeginCapture_v2",
    "cudaStreamBeginCaptureToGraph": "cuStreamBeginCaptureToGraph",
    "cudaStreamEndCapture": "cuStreamEndCapture",
    "cudaStreamGetCaptureInfo": "cuStreamGetCaptureInfo_v3",
    "cudaStreamGetCaptureInfo_v3": "cuStreamGetCaptureInfo_v3",
    "cudaThreadExchangeStreamCaptureMode": "cuThreadExchangeStreamCaptureMode",
    "cudaGraphCreate": "cuGraphCreate",
    "cudaGraphDestroy": "cuGraphDestroy",
    "cudaGraphClone": "cuGraphClone",
    "cudaGraphNodeFindInClone": "cuGraphNodeFindInClone",
    "cudaGraphAddEmptyNode": "cuGraphAddEmptyNode",
    "cudaGraphAddChildGraphNode": "cuGraphAddChildGraphNode",
    "cudaGraphChildGraphNodeGetGraph": "cuGraphChildGraphNodeGetGraph",
    "cudaGraphAddEventRecordNode": "cuGraphAddEventRecordNode",
    "cudaGraphAddEventWaitNode": "cuGraphAddEventWaitNode",
    "cudaGraphAddHostNode": "cuGraphAddHostNode",
    "cudaGraphAddDependencies": "cuGraphAddDependencies_v2",
    "cudaGraphDestroyNode": "cuGraphDestroyNode",
    "cudaGraphNodeGetType": "cuGraphNodeGetType",
    "cudaGraphGetNodes": "cuGraphGetNodes",
    "cudaGraphGetRootNodes": "cuGraphGetRootNodes",
    "cudaGraphInstantiateWithFlags": "cuGraphInstantiateWithFlags",
    "cudaGraphInstantiateWithParams": "cuGraphInstantiateWithParams",
    "cudaGraphExecDestroy": "cuGraphExecDestroy",
    "cudaGraphUpload": "cuGraphUpload",
    "cudaGraphLaunch": "cuGraphLaunch",
    "cudaGraphNodeSetEnabled": "cuGraphNodeSetEnabled",
    "cudaGraphNodeGetEnabled": "cuGraphNodeGetEnabled",
    "cudaGraphExecUpdate": "cuGraphExecUpdate_v2",
    "cudaEventCreateWithFlags": "cuEventCreate",
    "cudaEventDestroy": "cuEventDestroy_v2",
    "cudaEventRecord": "cuEventRecord",
    "cudaEventRecordWithFlags": "cuEventRecordWithFlags",
    "cudaEventQuery": "cuEventQuery",
    "cudaEventSynchronize": "cuEventSynchronize",
    "cudaEventElapsedTime": "cuEventElapsedTime",
    "cudaLibraryLoadData": "cuLibraryLoadData",
    "cudaLibraryUnload": "cuLibraryUnload",
    "cudaLibraryGetKernel": "cuLibraryGetKernel",
    "cudaLibraryGetGlobal": "cuLibraryGetGlobal",
}

#: Entry points that exist and answer that they are not supported.
_OTHERS = """
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
_PER_THREAD = ("_ptsz", "_ptds")


@cache
def entry_points() -> dict[str, EntryPoint]:
    """Return the declared entry points by name.

    >>> [parameter.name for parameter in entry_points()["cudaStreamQuery"].parameters]
    ['stream']
    """
    same = {name: EntryPoint(name, driver_entry_points()[other].parameters) for name, other in _SAME.items()}
    return {**declared_in(_DECLARATIONS), **same}


def driver_name(name: str) -> str | None:
    """Return the entry point of the driver that answers one of the runtime in the same words; or None."""
    return _SAME.get(name)


@cache
def exported_names() -> tuple[str, ...]:
    """Return the names of all entry points; the place of a name is the number that its code passes."""
    plain = (*entry_points(), *_OTHERS.split())
    return (*plain, *(name + ending for name in entry_points() for ending in _PER_THREAD))


def plain_name(name: str) -> str:
    """Return the name of an entry point without the mark of a thread's own default stream.

    >>> plain_name("cudaMemcpyAsync_ptsz")
    'cudaMemcpyAsync'
    """
    for ending in _PER_THREAD:
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
