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

    # nodes by the records of their kinds --------------------------------------------------------------------

    def node_work(self, kind: NodeKind, record: int) -> Work:
        """Return what a node of a kind does, as a record describes it."""
        match kind:
            case NodeKind.KERNEL:
                function = self.function(ctypes.c_uint64.from_address(record).value)
                sizes = list((ctypes.c_uint32 * 7).from_address(record + 8))
                return self.driver.kernel_work(
                    function, sizes, *(ctypes.c_uint64 * 2).from_address(record + 40)
                )
            case NodeKind.MEMCPY:
                return self.copy_work(record)
            case NodeKind.MEMSET:
                return self.driver.fill_work(record)
            case NodeKind.HOST:
                return self.driver.host_work(record)
            case NodeKind.MEM_ALLOC:  # the memory is there from now on
                size = ctypes.c_uint64.from_address(record + _ALLOCATED_BYTES).value
                address = ctypes.c_uint64.from_address(record + _ALLOCATED_ADDRESS)
                address.value, work = self.driver.graph_memory(size)
                return work
            case NodeKind.MEM_FREE | NodeKind.EMPTY:  # memory stays: the graph may be launched again
                return lambda: None
        raise DriverError(Result.NOT_SUPPORTED, f"nodes of the kind {int(kind)} are not supported")

    def add_node(self, kind: NodeKind, graph: int, dependencies: int, count: int, record: int) -> int:
        """Return a new node of a graph, of a kind whose record is given."""
        return self.driver.add_to(graph, dependencies, count, kind, self.node_work(kind, record)).handle

    def set_node(self, kind: NodeKind, executable: int, node: int, record: int) -> None:
        """Change what a node of an executable graph does."""
        self.driver.set_work(executable, node, self.node_work(kind, record))

    def cudaGraphKernelNodeSetParams(self, node: Handle, parameters: Pointer) -> None:
        """Change the launch of a node."""
        self.driver.known(node, Node).work = self.node_work(NodeKind.KERNEL, parameters)

    # copies -------------------------------------------------------------------------------------------------

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

    def cudaDeviceGetGraphMemAttribute(self, device: I32, attribute: I32, value: Pointer) -> None:
        """Write the bytes that graphs use: all bytes in use are counted."""
        ctypes.c_uint64.from_address(value).value = self.driver.memory.used

    def cudaGraphAddNode(
        self, graph: Handle, dependencies: Pointer, data: Pointer, count: U64, parameters: Pointer
    ) -> Annotated[Handle, "node"]:
        """Return a new node of the kind that a record says."""
        kind, record = ctypes.c_int32.from_address(parameters).value, parameters + _RECORD
        if kind == NodeKind.GRAPH:
            child = ctypes.c_uint64.from_address(record).value
            return self.driver.cuGraphAddChildGraphNode(graph, dependencies, count, child)
        if kind not in set(NodeKind):
            raise DriverError(Result.NOT_SUPPORTED, f"nodes of the kind {kind} are not supported")
        record += _COPY_IN_RECORD if kind == NodeKind.MEMCPY else 0
        return self.add_node(NodeKind(kind), graph, dependencies, count, record)
