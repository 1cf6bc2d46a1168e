"""Entry points of the runtime about graphs whose records differ from the driver's."""

import ctypes
from functools import partial
from typing import Annotated

from lanewise.virtual_gpu.driver import DriverError, Result
from lanewise.virtual_gpu.driver.entry_points import I32, U64, Handle, Pointer
from lanewise.virtual_gpu.driver.graphs import Graph, Node, NodeKind, Work
from lanewise.virtual_gpu.runtime.memory import MemoryCalls

#: Where cudaMemAllocNodeParams has the bytes that are asked for and the address that is answered.
_ALLOCATED_BYTES, _ALLOCATED_ADDRESS = 104, 112
#: Where cudaGraphNodeParams has the record of its kind; in the one of copies comes the record of the copy.
_RECORD, _COPY_IN_RECORD = 16, 16


class GraphCalls(MemoryCalls):
    """Graphs, in the runtime's words."""

    def cudaGraphInstantiate(self, graph: Handle, flags: U64) -> Annotated[Handle, "executable"]:
        """Return a graph that can be launched."""
        return self.driver.cuGraphInstantiateWithFlags(graph, flags)

    def cudaGraphGetEdges(
        self, graph: Handle, before: Pointer, after: Pointer, data: Pointer, count: Pointer
    ) -> None:
        """Write which nodes depend on which, or how many such pairs there are."""
        nodes = self.driver.known(graph, Graph).nodes
        pairs = [(first.handle, node.handle) for node in nodes for first in node.before]
        room = ctypes.c_uint64.from_address(count)
        if before and after:
            most = min(room.value, len(pairs))
            (ctypes.c_uint64 * most).from_address(before)[:] = [first for first, _ in pairs[:most]]
            (ctypes.c_uint64 * most).from_address(after)[:] = [then for _, then in pairs[:most]]
        room.value = len(pairs)

    def cudaGraphNodeGetDependencies(
        self, node: Handle, nodes: Pointer, data: Pointer, count: Pointer
    ) -> None:
        """Write the nodes that a node depends on, or how many there are."""
        self.driver.cuGraphNodeGetDependencies(node, nodes, count)

    # kernels ------------------------------------------------------------------------------------------------

    def _kernel(self, parameters: int) -> Work:
        """Return the launch that cudaKernelNodeParams describes."""
        function = self.registered.function(ctypes.c_uint64.from_address(parameters).value)
        sizes = list((ctypes.c_uint32 * 7).from_address(parameters + 8))
        arguments, extra = (ctypes.c_uint64 * 2).from_address(parameters + 40)
        return self.driver.kernel_work(function, sizes, arguments, extra)

    def cudaGraphAddKernelNode(
        self, graph: Handle, dependencies: Pointer, count: U64, parameters: Pointer
    ) -> Annotated[Handle, "node"]:
        """Return a new node that launches a kernel."""
        work = self._kernel(parameters)
        return self.driver.add_to(graph, dependencies, count, NodeKind.KERNEL, work).handle

    def cudaGraphKernelNodeSetParams(self, node: Handle, parameters: Pointer) -> None:
        """Change the launch of a node."""
        self.driver.known(node, Node).work = self._kernel(parameters)

    def cudaGraphExecKernelNodeSetParams(self, executable: Handle, node: Handle, parameters: Pointer) -> None:
        """Change the launch of a node of an executable graph."""
        self.driver.set_work(executable, node, self._kernel(parameters))

    # copies and fills ---------------------------------------------------------------------------------------

    def cudaGraphAddMemcpyNode(
        self, graph: Handle, dependencies: Pointer, count: U64, parameters: Pointer
    ) -> Annotated[Handle, "node"]:
        """Return a new node that copies a box."""
        work = self.copy_work(parameters)
        return self.driver.add_to(graph, dependencies, count, NodeKind.MEMCPY, work).handle

    def cudaGraphExecMemcpyNodeSetParams(self, executable: Handle, node: Handle, parameters: Pointer) -> None:
        """Change the copy of a node of an executable graph."""
        self.driver.set_work(executable, node, self.copy_work(parameters))

    def cudaGraphAddMemcpyNode1D(
        self,
        graph: Handle,
        dependencies: Pointer,
        count: U64,
        target: U64,
        source: U64,
        bytes: U64,
        kind: I32,
    ) -> Annotated[Handle, "node"]:
        """Return a new node that copies bytes."""
        return self.driver.add_to(
            graph, dependencies, count, NodeKind.MEMCPY, lambda: self.driver.cuMemcpy(target, source, bytes)
        ).handle

    def cudaGraphExecMemcpyNodeSetParams1D(
        self, executable: Handle, node: Handle, target: U64, source: U64, bytes: U64, kind: I32
    ) -> None:
        """Change the copy of a node of an executable graph."""
        self.driver.set_work(executable, node, lambda: self.driver.cuMemcpy(target, source, bytes))

    def cudaGraphAddMemcpyNodeToSymbol(self, graph: int, dependencies: int, count: int, *copy: int) -> int:
        """Return a new node that copies bytes to a variable."""
        work = partial(self.cudaMemcpyToSymbol, *copy)
        return self.driver.add_to(graph, dependencies, count, NodeKind.MEMCPY, work).handle

    def cudaGraphAddMemcpyNodeFromSymbol(self, graph: int, dependencies: int, count: int, *copy: int) -> int:
        """Return a new node that copies bytes of a variable."""
        work = partial(self.cudaMemcpyFromSymbol, *copy)
        return self.driver.add_to(graph, dependencies, count, NodeKind.MEMCPY, work).handle

    def cudaGraphAddMemsetNode(
        self, graph: Handle, dependencies: Pointer, count: U64, parameters: Pointer
    ) -> Annotated[Handle, "node"]:
        """Return a new node that fills memory."""
        return self.driver.cuGraphAddMemsetNode(graph, dependencies, count, parameters)

    def cudaGraphExecMemsetNodeSetParams(self, executable: Handle, node: Handle, parameters: Pointer) -> None:
        """Change the fill of a node of an executable graph."""
        self.driver.set_work(executable, node, self.driver.fill_work(parameters))

    def cudaGraphExecHostNodeSetParams(self, executable: Handle, node: Handle, parameters: Pointer) -> None:
        """Change the function of the host that a node of an executable graph calls."""
        self.driver.set_work(executable, node, self.driver.host_work(parameters))

    # memory of graphs ---------------------------------------------------------------------------------------

    def cudaGraphAddMemAllocNode(
        self, graph: Handle, dependencies: Pointer, count: U64, parameters: Pointer
    ) -> Annotated[Handle, "node"]:
        """Return a new node that allocates memory, which is there from now on; write its address."""
        bytes = ctypes.c_uint64.from_address(parameters + _ALLOCATED_BYTES).value
        address = ctypes.c_uint64.from_address(parameters + _ALLOCATED_ADDRESS)
        address.value, work = self.driver.graph_memory(bytes)
        return self.driver.add_to(graph, dependencies, count, NodeKind.MEM_ALLOC, work).handle

    def cudaGraphAddMemFreeNode(
        self, graph: Handle, dependencies: Pointer, count: U64, address: U64
    ) -> Annotated[Handle, "node"]:
        """Return a new node that gives back memory; it stays, because the graph may be launched again."""
        return self.driver.add_to(graph, dependencies, count, NodeKind.MEM_FREE, lambda: None).handle

    def cudaDeviceGraphMemTrim(self, device: I32) -> None:
        """Do nothing: memory of graphs stays with them."""

    def cudaDeviceGetGraphMemAttribute(self, device: I32, attribute: I32, value: Pointer) -> None:
        """Write the bytes that graphs use: all bytes in use are counted."""
        ctypes.c_uint64.from_address(value).value = self.driver.memory.used

    def cudaDeviceSetGraphMemAttribute(self, device: I32, attribute: I32, value: Pointer) -> None:
        """Do nothing: what was used at most is not forgotten."""

    def cudaGraphAddNode(
        self, graph: Handle, dependencies: Pointer, data: Pointer, count: U64, parameters: Pointer
    ) -> Annotated[Handle, "node"]:
        """Return a new node of the kind that a record says."""
        kind, record = ctypes.c_int32.from_address(parameters).value, parameters + _RECORD
        match kind:
            case NodeKind.KERNEL:
                return self.cudaGraphAddKernelNode(graph, dependencies, count, record)
            case NodeKind.MEMCPY:
                return self.cudaGraphAddMemcpyNode(graph, dependencies, count, record + _COPY_IN_RECORD)
            case NodeKind.MEMSET:
                return self.cudaGraphAddMemsetNode(graph, dependencies, count, record)
            case NodeKind.HOST:
                return self.driver.cuGraphAddHostNode(graph, dependencies, count, record)
            case NodeKind.EMPTY:
                return self.driver.cuGraphAddEmptyNode(graph, dependencies, count)
            case NodeKind.GRAPH:
                child = ctypes.c_uint64.from_address(record).value
                return self.driver.cuGraphAddChildGraphNode(graph, dependencies, count, child)
            case NodeKind.MEM_ALLOC:
                return self.cudaGraphAddMemAllocNode(graph, dependencies, count, record)
            case NodeKind.MEM_FREE:
                return self.cudaGraphAddMemFreeNode(graph, dependencies, count, 0)
        raise DriverError(Result.NOT_SUPPORTED, f"nodes of the kind {kind} are not supported")
