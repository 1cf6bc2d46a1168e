"""The entry points of the CUDA driver, declared once: names, parameters, and which of them are results.

The declarations are those of cuda.h in fewer words. `out` is a pointer to which the driver writes one result;
`text` is a string that ends in a zero byte; `pointer` is any other address, which a method reads or writes
by itself. `Driver` has a method of the same name for what is supported: it takes the other parameters and
returns the results. The decoding of arguments from C, the log and the exported names derive from this table.
"""

import ctypes
import re
from functools import cache
from typing import Any, NamedTuple

#: The types of parameters and results, as ctypes has them.
C_TYPES: dict[str, Any] = {
    "i32": ctypes.c_int32,
    "u32": ctypes.c_uint32,
    "u64": ctypes.c_uint64,
    "f32": ctypes.c_float,
    "pointer": ctypes.c_uint64,
    "handle": ctypes.c_uint64,
    "text": ctypes.c_uint64,
}


class Parameter(NamedTuple):
    """A parameter of an entry point: its type, its name, and whether a result is written to it."""

    type: str
    name: str
    is_result: bool


class EntryPoint(NamedTuple):
    """An entry point: its name with the version that cuda.h maps it to, and its parameters in order."""

    name: str
    parameters: tuple[Parameter, ...]

    @property
    def inputs(self) -> tuple[Parameter, ...]:
        """The parameters that a method of `Driver` takes."""
        return tuple(parameter for parameter in self.parameters if not parameter.is_result)

    @property
    def results(self) -> tuple[Parameter, ...]:
        """The parameters that a method of `Driver` returns."""
        return tuple(parameter for parameter in self.parameters if parameter.is_result)


_DECLARATIONS = """
cuInit(u32 flags)
cuDriverGetVersion(out i32 version)
cuGetErrorString(i32 error, out pointer text)
cuGetErrorName(i32 error, out pointer text)
cuGetProcAddress(text symbol, out pointer function, i32 version, u64 flags)
cuGetProcAddress_v2(text symbol, out pointer function, i32 version, u64 flags, pointer status)

cuDeviceGet(out i32 device, i32 ordinal)
cuDeviceGetCount(out i32 count)
cuDeviceGetName(pointer name, i32 length, i32 device)
cuDeviceGetUuid(pointer uuid, i32 device)
cuDeviceGetUuid_v2(pointer uuid, i32 device)
cuDeviceTotalMem_v2(out u64 bytes, i32 device)
cuDeviceGetAttribute(out i32 value, i32 attribute, i32 device)
cuDeviceComputeCapability(out i32 major, out i32 minor, i32 device)
cuDeviceGetPCIBusId(pointer id, i32 length, i32 device)
cuDeviceCanAccessPeer(out i32 can, i32 device, i32 peer)
cuDeviceGetDefaultMemPool(out handle pool, i32 device)
cuDeviceGetMemPool(out handle pool, i32 device)
cuDevicePrimaryCtxRetain(out handle context, i32 device)
cuDevicePrimaryCtxRelease_v2(i32 device)
cuDevicePrimaryCtxReset_v2(i32 device)
cuDevicePrimaryCtxSetFlags_v2(i32 device, u32 flags)
cuDevicePrimaryCtxGetState(i32 device, out u32 flags, out i32 active)

cuCtxCreate_v2(out handle context, u32 flags, i32 device)
cuCtxCreate_v4(out handle context, pointer parameters, u32 flags, i32 device)
cuCtxDestroy_v2(handle context)
cuCtxGetCurrent(out handle context)
cuCtxSetCurrent(handle context)
cuCtxPushCurrent_v2(handle context)
cuCtxPopCurrent_v2(out handle context)
cuCtxGetDevice(out i32 device)
cuCtxGetFlags(out u32 flags)
cuCtxGetId(handle context, out u64 id)
cuCtxGetApiVersion(handle context, out u32 version)
cuCtxGetLimit(out u64 value, i32 limit)
cuCtxSetLimit(i32 limit, u64 value)
cuCtxGetCacheConfig(out i32 config)
cuCtxSetCacheConfig(i32 config)
cuCtxGetStreamPriorityRange(out i32 least, out i32 greatest)
cuCtxSynchronize()

cuModuleLoad(out handle module, text path)
cuModuleLoadData(out handle module, pointer image)
cuModuleLoadDataEx(out handle module, pointer image, u32 count, pointer options, pointer values)
cuModuleLoadFatBinary(out handle module, pointer image)
cuModuleUnload(handle module)
cuModuleGetFunction(out handle function, handle module, text name)
cuModuleGetGlobal_v2(out u64 address, out u64 bytes, handle module, text name)
cuModuleGetLoadingMode(out i32 mode)
cuLinkCreate_v2(u32 count, pointer options, pointer values, out handle state)
cuLinkAddData_v2(handle state, i32 type, pointer data, u64 bytes, text name, u32 count, pointer options, \
pointer values)
cuLinkAddFile_v2(handle state, i32 type, text path, u32 count, pointer options, pointer values)
cuLinkComplete(handle state, out pointer image, out u64 bytes)
cuLinkDestroy(handle state)
cuLibraryLoadData(out handle library, pointer image, pointer options, pointer option_values, \
u32 option_count, pointer library_options, pointer library_values, u32 library_count)
cuLibraryUnload(handle library)
cuLibraryGetKernel(out handle kernel, handle library, text name)
cuLibraryGetKernelCount(out u32 count, handle library)
cuLibraryEnumerateKernels(pointer kernels, u32 count, handle library)
cuLibraryGetModule(out handle module, handle library)
cuLibraryGetGlobal(out u64 address, out u64 bytes, handle library, text name)
cuKernelGetFunction(out handle function, handle kernel)
cuKernelGetAttribute(out i32 value, i32 attribute, handle kernel, i32 device)
cuKernelSetAttribute(i32 attribute, i32 value, handle kernel, i32 device)
cuFuncGetAttribute(out i32 value, i32 attribute, handle function)
cuFuncSetAttribute(handle function, i32 attribute, i32 value)
cuFuncSetCacheConfig(handle function, i32 config)
cuFuncSetSharedMemConfig(handle function, i32 config)
cuFuncGetModule(out handle module, handle function)
cuFuncGetName(out pointer name, handle function)
cuFuncGetParamInfo(handle function, u64 index, out u64 offset, out u64 bytes)
cuOccupancyMaxActiveBlocksPerMultiprocessor(out i32 blocks, handle function, i32 threads, u64 shared_bytes)
cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(out i32 blocks, handle function, i32 threads, \
u64 shared_bytes, u32 flags)
cuOccupancyMaxPotentialBlockSize(out i32 blocks, out i32 threads, handle function, pointer shared_of, \
u64 shared_bytes, i32 limit)
cuOccupancyMaxPotentialBlockSizeWithFlags(out i32 blocks, out i32 threads, handle function, \
pointer shared_of, u64 shared_bytes, i32 limit, u32 flags)
cuOccupancyAvailableDynamicSMemPerBlock(out u64 bytes, handle function, i32 blocks, i32 threads)
cuModuleGetFunctionCount(out u32 count, handle module)
cuModuleEnumerateFunctions(pointer functions, u32 count, handle module)
cuFuncIsLoaded(out i32 state, handle function)
cuFuncLoad(handle function)
cuOccupancyMaxActiveClusters(out i32 clusters, handle function, pointer config)

cuMemGetInfo_v2(out u64 free, out u64 total)
cuMemAlloc_v2(out u64 address, u64 bytes)
cuMemAllocPitch_v2(out u64 address, out u64 pitch, u64 width, u64 height, u32 element_bytes)
cuMemAllocManaged(out u64 address, u64 bytes, u32 flags)
cuMemAllocHost_v2(out u64 address, u64 bytes)
cuMemHostAlloc(out u64 address, u64 bytes, u32 flags)
cuMemAllocAsync(out u64 address, u64 bytes, handle stream)
cuMemAllocFromPoolAsync(out u64 address, u64 bytes, handle pool, handle stream)
cuMemPoolCreate(out handle pool, pointer properties)
cuMemPoolDestroy(handle pool)
cuMemPoolGetAttribute(handle pool, i32 attribute, pointer value)
cuMemPoolSetAttribute(handle pool, i32 attribute, pointer value)
cuMemPoolTrimTo(handle pool, u64 bytes)
cuMemFree_v2(u64 address)
cuMemFreeHost(u64 address)
cuMemFreeAsync(u64 address, handle stream)
cuMemHostRegister_v2(u64 address, u64 bytes, u32 flags)
cuMemHostUnregister(u64 address)
cuMemHostGetDevicePointer_v2(out u64 address, u64 host, u32 flags)
cuMemGetAddressRange_v2(out u64 base, out u64 bytes, u64 address)
cuPointerGetAttribute(pointer value, i32 attribute, u64 address)
cuPointerGetAttributes(u32 count, pointer attributes, pointer values, u64 address)
cuMemPrefetchAsync(u64 address, u64 bytes, i32 device, handle stream)
cuMemAdvise(u64 address, u64 bytes, i32 advice, i32 device)
cuMemcpy(u64 target, u64 source, u64 bytes)
cuMemcpyAsync(u64 target, u64 source, u64 bytes, handle stream)
cuMemcpyHtoD_v2(u64 target, u64 source, u64 bytes)
cuMemcpyDtoH_v2(u64 target, u64 source, u64 bytes)
cuMemcpyDtoD_v2(u64 target, u64 source, u64 bytes)
cuMemcpyHtoDAsync_v2(u64 target, u64 source, u64 bytes, handle stream)
cuMemcpyDtoHAsync_v2(u64 target, u64 source, u64 bytes, handle stream)
cuMemcpyDtoDAsync_v2(u64 target, u64 source, u64 bytes, handle stream)
cuMemsetD8_v2(u64 address, u32 value, u64 count)
cuMemsetD16_v2(u64 address, u32 value, u64 count)
cuMemsetD32_v2(u64 address, u32 value, u64 count)
cuMemsetD8Async(u64 address, u32 value, u64 count, handle stream)
cuMemsetD16Async(u64 address, u32 value, u64 count, handle stream)
cuMemsetD32Async(u64 address, u32 value, u64 count, handle stream)
cuMemcpy2D_v2(pointer record)
cuMemcpy2DUnaligned_v2(pointer record)
cuMemcpy2DAsync_v2(pointer record, handle stream)
cuMemcpy3D_v2(pointer record)
cuMemcpy3DAsync_v2(pointer record, handle stream)
cuMemsetD2D8_v2(u64 address, u64 pitch, u32 value, u64 width, u64 height)
cuMemsetD2D16_v2(u64 address, u64 pitch, u32 value, u64 width, u64 height)
cuMemsetD2D32_v2(u64 address, u64 pitch, u32 value, u64 width, u64 height)
cuMemGetAllocationGranularity(out u64 bytes, pointer properties, i32 option)
cuMemCreate(out handle memory, u64 bytes, pointer properties, u64 flags)
cuMemGetAllocationPropertiesFromHandle(pointer properties, handle memory)
cuMemRelease(handle memory)
cuMemAddressReserve(out u64 address, u64 bytes, u64 alignment, u64 wanted, u64 flags)
cuMemAddressFree(u64 address, u64 bytes)
cuMemMap(u64 address, u64 bytes, u64 offset, handle memory, u64 flags)
cuMemSetAccess(u64 address, u64 bytes, pointer access, u64 count)
cuMemUnmap(u64 address, u64 bytes)
cuArrayCreate_v2(out handle array, pointer description)
cuArray3DCreate_v2(out handle array, pointer description)
cuArrayDestroy(handle array)
cuTexObjectCreate(out handle texture, pointer resource, pointer description, pointer view)
cuTexObjectDestroy(handle texture)
cuSurfObjectCreate(out handle surface, pointer resource)
cuSurfObjectDestroy(handle surface)

cuStreamCreate(out handle stream, u32 flags)
cuStreamCreateWithPriority(out handle stream, u32 flags, i32 priority)
cuStreamDestroy_v2(handle stream)
cuStreamSynchronize(handle stream)
cuStreamQuery(handle stream)
cuStreamWaitEvent(handle stream, handle event, u32 flags)
cuStreamGetCtx(handle stream, out handle context)
cuStreamGetFlags(handle stream, out u32 flags)
cuStreamGetPriority(handle stream, out i32 priority)
cuStreamIsCapturing(handle stream, out i32 status)
cuLaunchHostFunc(handle stream, pointer function, pointer data)
cuEventCreate(out handle event, u32 flags)
cuEventDestroy_v2(handle event)
cuEventRecord(handle event, handle stream)
cuEventRecordWithFlags(handle event, handle stream, u32 flags)
cuEventQuery(handle event)
cuEventSynchronize(handle event)
cuEventElapsedTime(out f32 milliseconds, handle start, handle end)
cuEventElapsedTime_v2(out f32 milliseconds, handle start, handle end)

cuLaunchKernel(handle function, u32 grid_x, u32 grid_y, u32 grid_z, u32 block_x, u32 block_y, u32 block_z, \
u32 shared_bytes, handle stream, pointer parameters, pointer extra)
cuLaunchCooperativeKernel(handle function, u32 grid_x, u32 grid_y, u32 grid_z, u32 block_x, u32 block_y, \
u32 block_z, u32 shared_bytes, handle stream, pointer parameters)
cuLaunchKernelEx(pointer config, handle function, pointer parameters, pointer extra)

cuStreamBeginCapture_v2(handle stream, i32 mode)
cuStreamBeginCaptureToGraph(handle stream, handle graph, pointer dependencies, pointer data, u64 count, \
i32 mode)
cuStreamEndCapture(handle stream, out handle graph)
cuStreamGetCaptureInfo_v3(handle stream, pointer status, pointer id, pointer graph, pointer dependencies, \
pointer edges, pointer count)
cuThreadExchangeStreamCaptureMode(pointer mode)
cuGraphCreate(out handle graph, u32 flags)
cuGraphDestroy(handle graph)
cuGraphClone(out handle clone, handle graph)
cuGraphNodeFindInClone(out handle copy, handle node, handle graph)
cuGraphAddEmptyNode(out handle node, handle graph, pointer dependencies, u64 count)
cuGraphAddChildGraphNode(out handle node, handle graph, pointer dependencies, u64 count, handle child)
cuGraphChildGraphNodeGetGraph(handle node, out handle graph)
cuGraphAddEventRecordNode(out handle node, handle graph, pointer dependencies, u64 count, handle event)
cuGraphAddEventWaitNode(out handle node, handle graph, pointer dependencies, u64 count, handle event)
cuGraphAddHostNode(out handle node, handle graph, pointer dependencies, u64 count, pointer parameters)
cuGraphAddMemsetNode(out handle node, handle graph, pointer dependencies, u64 count, pointer parameters, \
handle context)
cuGraphAddKernelNode_v2(out handle node, handle graph, pointer dependencies, u64 count, pointer parameters)
cuGraphAddDependencies(handle graph, pointer before, pointer after, u64 count)
cuGraphAddDependencies_v2(handle graph, pointer before, pointer after, pointer data, u64 count)
cuGraphDestroyNode(handle node)
cuGraphNodeGetType(handle node, out i32 type)
cuGraphGetNodes(handle graph, pointer nodes, pointer count)
cuGraphGetRootNodes(handle graph, pointer nodes, pointer count)
cuGraphNodeGetDependencies(handle node, pointer nodes, pointer count)
cuGraphInstantiateWithFlags(out handle executable, handle graph, u64 flags)
cuGraphInstantiateWithParams(out handle executable, handle graph, pointer parameters)
cuGraphExecDestroy(handle executable)
cuGraphUpload(handle executable, handle stream)
cuGraphLaunch(handle executable, handle stream)
cuGraphKernelNodeSetParams_v2(handle node, pointer parameters)
cuGraphExecKernelNodeSetParams_v2(handle executable, handle node, pointer parameters)
cuGraphNodeSetEnabled(handle executable, handle node, u32 enabled)
cuGraphNodeGetEnabled(handle executable, handle node, out u32 enabled)
cuGraphExecUpdate_v2(handle executable, handle graph, pointer info)

cuTensorMapEncodeTiled(pointer map, i32 type, u32 rank, u64 address, pointer dims, pointer strides, \
pointer box, pointer element_strides, i32 interleave, i32 swizzle, i32 l2_promotion, i32 fill)
cuTensorMapEncodeIm2col(pointer map, i32 type, u32 rank, u64 address, pointer dims, pointer strides, \
    pointer lower, pointer upper, u32 channels, u32 pixels, pointer element_strides, i32 interleave, \
    i32 swizzle, i32 l2_promotion, i32 fill)
cuTensorMapReplaceAddress(pointer map, u64 address)
"""

_PARAMETER = re.compile(r"(out )?(\w+) (\w+)")


@cache
def entry_points() -> dict[str, EntryPoint]:
    """Return the declared entry points by name.

    >>> [result.name for result in entry_points()["cuMemAlloc_v2"].results]
    ['address']
    """
    return declared_in(_DECLARATIONS)


def declared_in(text: str) -> dict[str, EntryPoint]:
    """Return the entry points that a text declares, one in a line, by name."""
    declared = {}
    for name, inside in re.findall(r"^(\w+)\((.*)\)$", text, re.MULTILINE):
        parameters = tuple(Parameter(kind, own, bool(out)) for out, kind, own in _PARAMETER.findall(inside))
        declared[name] = EntryPoint(name, parameters)
    return declared
