"""Graphs of work: captured from streams or made node by node, instantiated, updated and launched.

A node keeps what it does as a function without arguments. The nodes of a graph run one after the other, each
after those that it depends on: one of the orders that CUDA allows.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Annotated

from lanewise.virtual_gpu.devices import Device
from lanewise.virtual_gpu.driver.arrays import COPY_2D_BYTES, COPY_3D_BYTES, Box
from lanewise.virtual_gpu.driver.entry_points import I32, U32, U64, Handle, Pointer
from lanewise.virtual_gpu.driver.launches import ATTRIBUTE_BYTES, LaunchCalls, LaunchConfig
from lanewise.virtual_gpu.driver.modules import LoadedFunction
from lanewise.virtual_gpu.driver.results import DriverError, Result
from lanewise.virtual_gpu.driver.state import Launcher, plain_launch
from lanewise.virtual_gpu.order.host_lines import host_line
from lanewise.virtual_gpu.order.stream_order import NODE, Clock

Work = Callable[[], object]
#: Whether a stream is captured (CUstreamCaptureStatus).
_IDLE, _CAPTURING, _INVALID = range(3)


class NodeKind(IntEnum):
    """What a node does (CUgraphNodeType)."""

    KERNEL = 0
    MEMCPY = 1
    MEMSET = 2
    HOST = 3
    GRAPH = 4
    EMPTY = 5
    WAIT_EVENT = 6
    EVENT_RECORD = 7
    MEM_ALLOC = 10
    MEM_FREE = 11


@dataclass(eq=False)
class Node:
    """A node of a graph: its work, and the nodes that come before."""

    kind: NodeKind
    work: Work
    before: list[Node] = field(default_factory=list)
    handle: int = 0
    #: The graph that a node of the kind GRAPH runs.
    graph: Graph | None = None
    #: The line of the program that made it, while races between streams are looked for.
    line: str | None = None


@dataclass(eq=False)
class Graph:
    """Nodes in the order in which they were added."""

    nodes: list[Node] = field(default_factory=list)

    def in_order(self) -> list[Node]:
        """Return the nodes, each after those that it depends on."""
        done: dict[Node, bool] = {}
        order: list[Node] = []
        for start in self.nodes:
            pending = [start]
            while pending:
                node = pending[-1]
                if done.get(node):
                    pending.pop()
                    continue
                missing = [earlier for earlier in node.before if not done.get(earlier)]
                if not missing:
                    done[node] = True
                    order.append(node)
                    pending.pop()
                elif node in done:
                    raise DriverError(Result.INVALID_VALUE, "the nodes of the graph depend on each other")
                else:
                    done[node] = False
                    pending += missing
        return order


@dataclass(eq=False)
class ExecutableGraph:
    """A graph that can be launched: its nodes in order, with their work at the time it was made."""

    order: list[Node]
    work: dict[Node, Work]
    disabled: set[Node] = field(default_factory=set)


@dataclass(eq=False)
class Capture:
    """A stream that is captured: the graph, and the nodes that the next one depends on."""

    graph: Graph
    last: list[Node] = field(default_factory=list)
    #: Whether the capture began on this stream, which also ends it.
    is_origin: bool = False
    #: Whether a call that a capture does not allow has ended it.
    is_invalid: bool = False


def _status(capture: Capture | None) -> int:
    """Return whether a stream is captured, as CUDA numbers it."""
    if capture is None:
        return _IDLE
    return _INVALID if capture.is_invalid else _CAPTURING


class GraphCalls(LaunchCalls):
    """Graphs, and the entry points that a captured stream keeps instead of executing them."""

    def __init__(self, device: Device, launcher: Launcher = plain_launch) -> None:
        super().__init__(device, launcher)
        #: The streams that are captured, by handle.
        self._captures: dict[int, Capture] = {}
        #: Events that were recorded in captured streams: what a stream that waits for them depends on.
        self._captured_events: dict[int, Capture] = {}
        #: The nodes of copied graphs by those of their originals.
        self._clones: dict[int, dict[int, int]] = {}

    def enqueue(self, stream: int, kind: NodeKind, work: Work) -> object:
        """Do work in a stream at once, or keep it as a node if the stream is captured."""
        capture = self._captures.get(stream) if self._captures else None
        if capture is None:
            return work()
        capture.last = [self.add_node(capture.graph, kind, work, capture.last)]
        return None

    def _used_by(self, stream: int) -> int:
        """Return the stream that work of a stream runs in: what is kept runs in none of its own."""
        return 0 if stream in self._captures else stream

    def add_node(self, graph: Graph, kind: NodeKind, work: Work, before: Iterable[Node] = ()) -> Node:
        """Return a new node of a graph."""
        node = Node(kind, work, list(before), line=host_line() if self.races is not None else None)
        node.handle = self.handle(node)
        graph.nodes.append(node)
        return node

    # capture ------------------------------------------------------------------------------------------------

    def cuStreamBeginCapture_v2(self, stream: Handle, mode: I32) -> None:
        """Keep the work of a stream from now on in a new graph."""
        self.begin_capture(stream, Graph())

    def begin_capture(self, stream: int, graph: Graph, before: Sequence[Node] = ()) -> None:
        """Keep the work of a stream from now on in a graph."""
        self.stream(stream)
        if stream in self._captures:
            raise DriverError(Result.ILLEGAL_STATE, "the stream is captured already")
        self._captures[stream] = Capture(graph, list(before), is_origin=True)

    def cuStreamBeginCaptureToGraph(
        self, stream: Handle, graph: Handle, dependencies: Pointer, data: Pointer, count: U64, mode: I32
    ) -> None:
        """Keep the work of a stream from now on in a graph that is there."""
        self.begin_capture(stream, self.known(graph, Graph), self.nodes_at(dependencies, count))

    def cuStreamEndCapture(self, stream: Handle) -> Annotated[Handle, "graph", 1]:
        """Return the graph of the work that a stream was given since its capture began."""
        capture = self._captures.get(stream)
        if capture is None or not capture.is_origin:
            raise DriverError(Result.ILLEGAL_STATE, "no capture began on the stream")
        captured = {handle: own for handle, own in self._captures.items() if own.graph is capture.graph}
        for handle in captured:
            del self._captures[handle]
        self._captured_events.clear()
        if any(own.is_invalid for own in captured.values()):
            raise DriverError(Result.STREAM_CAPTURE_INVALIDATED, "a call before it ended the capture")
        return self.graph_handle(capture.graph)

    def cuStreamSynchronize(self, stream: Handle) -> None:
        """Wait for a stream, which must not be captured: its work runs when the graph is launched."""
        capture = self._captures.get(stream)
        if capture is None:
            return super().cuStreamSynchronize(stream)
        capture.is_invalid = True
        raise DriverError(
            Result.STREAM_CAPTURE_UNSUPPORTED,
            "the stream is captured, and its work runs when the graph is launched: wait after the launch",
        )

    cuStreamQuery = cuStreamSynchronize

    def graph_handle(self, graph: Graph) -> int:
        """Return the handle of a graph, which is made the first time."""
        known = next((number for number, value in self._known.items() if value is graph), None)
        return known if known is not None else self.handle(graph)

    def cuStreamIsCapturing(self, stream: Handle) -> Annotated[I32, "status", 1]:
        """Return whether a stream is captured."""
        self.stream(stream)
        return _status(self._captures.get(stream))

    def cuStreamGetCaptureInfo_v3(
        self,
        stream: Handle,
        status: Pointer,
        id: Pointer,
        graph: Pointer,
        dependencies: Pointer,
        edges: Pointer,
        count: Pointer,
    ) -> None:
        """Write whether a stream is captured, and into which graph."""
        capture = self._captures.get(stream)
        ctypes.c_int32.from_address(status).value = _status(capture)
        if capture is None:
            return
        nodes = (ctypes.c_uint64 * len(capture.last))(*(node.handle for node in capture.last))
        self._captured_nodes = nodes  # it lives until the next question
        own = self.graph_handle(capture.graph)
        for place, value in (
            (id, own), (graph, own), (dependencies, ctypes.addressof(nodes)), (edges, 0), (count, len(nodes)),
        ):  # fmt: skip
            if place:
                ctypes.c_uint64.from_address(place).value = value

    def cuThreadExchangeStreamCaptureMode(self, mode: Pointer) -> None:
        """Do nothing: every mode is allowed what the others are."""

    # work that a captured stream keeps ----------------------------------------------------------------------

    def cuLaunchKernel(self, function: int, *rest: int) -> None:
        """Launch a kernel, or keep the launch with its arguments as they are now."""
        *sizes, stream, parameters, extra = rest
        if stream not in self._captures:
            super().cuLaunchKernel(function, *rest)
            return
        self.enqueue(stream, NodeKind.KERNEL, self.kernel_work(function, sizes, parameters, extra))

    def kernel_work(self, function: int, sizes: Sequence[int], parameters: int, extra: int) -> Work:
        """Return the launch of a kernel with its arguments as they are now."""
        own = self.own_arguments(function, parameters) if not extra else None
        places = ctypes.addressof(own[0]) if own is not None else parameters

        def work(own: object = own) -> None:  # it keeps the arguments
            LaunchCalls.cuLaunchKernel(self, function, *sizes, 0, places, extra)

        return work

    def own_arguments(
        self, function: int, parameters: int
    ) -> tuple[ctypes.Array[ctypes.c_uint64], list[ctypes.Array[ctypes.c_char]]]:
        """Return copies of a kernel's arguments: their addresses, and the copies."""
        sizes = self.known(function, LoadedFunction).parameter_sizes
        places = (ctypes.c_uint64 * len(sizes)).from_address(parameters) if sizes else ()
        copies = [
            ctypes.create_string_buffer(ctypes.string_at(place, size), size)
            for place, size in zip(places, sizes, strict=True)
        ]
        return (ctypes.c_uint64 * len(sizes))(*(ctypes.addressof(copy) for copy in copies)), copies

    def cuLaunchKernelEx(
        self, config: Pointer, function: Handle, parameters: Pointer, extra: Pointer
    ) -> None:
        """Launch a kernel as a record says, or keep the launch with its arguments as they are now."""
        asked = LaunchConfig.from_address(config)
        if asked.stream not in self._captures:
            super().cuLaunchKernelEx(config, function, parameters, extra)
            return
        record, size = LaunchConfig.from_buffer_copy(asked), asked.count * ATTRIBUTE_BYTES
        copy = ctypes.create_string_buffer(
            ctypes.string_at(asked.attributes, size) if size else b"", size or 1
        )
        record.attributes, record.stream = ctypes.addressof(copy), 0
        start, own = ctypes.addressof(record), self.own_arguments(function, parameters)

        def work(kept: object = (record, copy, own)) -> None:
            LaunchCalls.cuLaunchKernelEx(self, start, function, ctypes.addressof(own[0]), extra)

        self.enqueue(asked.stream, NodeKind.KERNEL, work)

    def cuMemcpyAsync(self, target: U64, source: U64, bytes: U64, stream: Handle) -> None:
        """Copy bytes, or keep the copy."""
        used = self._used_by(stream)
        self.enqueue(stream, NodeKind.MEMCPY, lambda: self._copy(target, source, bytes, used, is_async=True))

    def cuMemcpyHtoDAsync_v2(self, target: U64, source: U64, bytes: U64, stream: Handle) -> None:
        """Copy bytes to memory of the device, or keep the copy."""
        self.require_on_device(bytes, target)
        self.cuMemcpyAsync(target, source, bytes, stream)

    def cuMemcpyDtoHAsync_v2(self, target: U64, source: U64, bytes: U64, stream: Handle) -> None:
        """Copy bytes from memory of the device, or keep the copy."""
        self.require_on_device(bytes, source)
        self.cuMemcpyAsync(target, source, bytes, stream)

    def cuMemcpyDtoDAsync_v2(self, target: U64, source: U64, bytes: U64, stream: Handle) -> None:
        """Copy bytes from one place on the device to another, or keep the copy."""
        self.require_on_device(bytes, target, source)
        self.cuMemcpyAsync(target, source, bytes, stream)

    def cuMemcpy2DAsync_v2(self, record: Pointer, stream: Handle) -> None:
        """Copy a rectangle, or keep the copy as its record is now."""
        self.enqueue(stream, NodeKind.MEMCPY, with_copy(self.cuMemcpy2D_v2, record, COPY_2D_BYTES))

    def cuMemcpy3DAsync_v2(self, record: Pointer, stream: Handle) -> None:
        """Copy a box, or keep the copy as its record is now."""
        self.enqueue(stream, NodeKind.MEMCPY, with_copy(self.cuMemcpy3D_v2, record, COPY_3D_BYTES))

    def cuMemsetD8Async(self, address: U64, value: U32, count: U64, stream: Handle) -> None:
        """Fill memory with a byte, or keep the fill."""
        self._fill_in(stream, address, value, count, 1)

    def cuMemsetD16Async(self, address: U64, value: U32, count: U64, stream: Handle) -> None:
        """Fill memory with a number of two bytes, or keep the fill."""
        self._fill_in(stream, address, value, count, 2)

    def cuMemsetD32Async(self, address: U64, value: U32, count: U64, stream: Handle) -> None:
        """Fill memory with a number of four bytes, or keep the fill."""
        self._fill_in(stream, address, value, count, 4)

    def _fill_in(self, stream: int, address: int, value: int, count: int, size: int) -> None:
        used = self._used_by(stream)
        self.enqueue(stream, NodeKind.MEMSET, lambda: self._fill(address, value, count, size, used))

    def cuMemAllocAsync(self, bytes: U64, stream: Handle) -> Annotated[U64, "address"]:
        """Return the address of new memory; in a captured stream it is there from now on."""
        if stream in self._captures:
            address, work = self.graph_memory(bytes)
            self.enqueue(stream, NodeKind.MEM_ALLOC, work)
            return address
        return super().cuMemAllocAsync(bytes, stream)

    def graph_memory(self, bytes: int) -> tuple[int, Work]:
        """Return the address of memory of a graph, and what brings it back at a launch if it was freed."""
        address = self.memory.allocate(bytes)
        known = self.memory.find(address)
        assert known is not None
        memory = known.bytes

        def work() -> None:
            if self.memory.find(address) is None:
                title = f"the graph's memory at {address:#x} ({bytes:,} bytes)"
                if self.memory.reserved is not None:
                    self.memory.reserved.keep_again(address)
                self.memory.adopt(address, bytes, title, memory, is_allocated=True, host=known.host)
                self.memory.used += bytes

        return address, work

    def cuMemFreeAsync(self, address: U64, stream: Handle) -> None:
        """Give back memory; in a captured stream it stays, because the graph may be launched again."""
        if stream in self._captures:
            self.enqueue(stream, NodeKind.MEM_FREE, lambda: None)
            return
        super().cuMemFreeAsync(address, stream)

    def cuLaunchHostFunc(self, stream: Handle, function: Pointer, data: Pointer) -> None:
        """Call a function of the host, or keep the call."""
        used = self._used_by(stream)
        self.enqueue(stream, NodeKind.HOST, lambda: self.call_host(used, function, data))

    def cuEventRecord(self, event: Handle, stream: Handle) -> None:
        """Record an event; in a captured stream it stands for the work so far."""
        capture = self._captures.get(stream)
        if capture is None:
            self._captured_events.pop(event, None)
            super().cuEventRecord(event, stream)
            return
        self._captured_events[event] = Capture(capture.graph, list(capture.last))

    def cuStreamWaitEvent(self, stream: Handle, event: Handle, flags: U32) -> None:
        """Wait for an event; a stream that waits for one of a captured stream is captured as well."""
        recorded = self._captured_events.get(event)
        if recorded is None:
            super().cuStreamWaitEvent(stream, event, flags)
            return
        own = self._captures.setdefault(stream, Capture(recorded.graph))
        own.last = [*own.last, *(node for node in recorded.last if node not in own.last)]

    # graphs -------------------------------------------------------------------------------------------------

    def cuGraphCreate(self, flags: U32) -> Annotated[Handle, "graph"]:
        """Return a new graph, which has no nodes."""
        return self.handle(Graph())

    def cuGraphDestroy(self, graph: Handle) -> None:
        """Forget a graph: its handle is none from now on."""
        self.forget(graph, Graph)

    def nodes_at(self, place: int, count: int) -> list[Node]:
        """Return the nodes whose handles lie in memory."""
        handles = (ctypes.c_uint64 * count).from_address(place) if count else ()
        return [self.known(handle, Node) for handle in handles]

    def add_to(self, graph: int, place: int, count: int, kind: NodeKind, work: Work) -> Node:
        """Return a new node of a graph that depends on nodes whose handles lie in memory."""
        return self.add_node(self.known(graph, Graph), kind, work, self.nodes_at(place, count))

    def cuGraphAddEmptyNode(
        self, graph: Handle, dependencies: Pointer, count: U64
    ) -> Annotated[Handle, "node"]:
        """Return a new node that does nothing."""
        return self.add_to(graph, dependencies, count, NodeKind.EMPTY, lambda: None).handle

    def cuGraphAddChildGraphNode(
        self, graph: Handle, dependencies: Pointer, count: U64, child: Handle
    ) -> Annotated[Handle, "node"]:
        """Return a new node that runs a graph as it is now."""
        own = self._copied(self.known(child, Graph))[0]
        node = self.add_to(
            graph,
            dependencies,
            count,
            NodeKind.GRAPH,
            lambda: self._run(own.in_order(), lambda node: node.work()),
        )
        node.graph = own
        return node.handle

    def cuGraphChildGraphNodeGetGraph(self, node: Handle) -> Annotated[Handle, "graph", 1]:
        """Return the graph that a node runs."""
        graph = self.known(node, Node).graph
        if graph is None:
            raise DriverError(Result.INVALID_VALUE, "the node does not run a graph")
        return self.graph_handle(graph)

    def cuGraphAddEventRecordNode(
        self, graph: Handle, dependencies: Pointer, count: U64, event: Handle
    ) -> Annotated[Handle, "node"]:
        """Return a new node that records an event."""
        return self.add_to(
            graph, dependencies, count, NodeKind.EVENT_RECORD, lambda: self.cuEventRecord(event, 0)
        ).handle

    def cuGraphAddEventWaitNode(
        self, graph: Handle, dependencies: Pointer, count: U64, event: Handle
    ) -> Annotated[Handle, "node"]:
        """Return a new node that waits for an event, which is over."""
        return self.add_to(graph, dependencies, count, NodeKind.WAIT_EVENT, lambda: None).handle

    def cuGraphAddHostNode(
        self, graph: Handle, dependencies: Pointer, count: U64, parameters: Pointer
    ) -> Annotated[Handle, "node"]:
        """Return a new node that calls a function of the host."""
        return self.add_to(graph, dependencies, count, NodeKind.HOST, self.host_work(parameters)).handle

    def host_work(self, parameters: int) -> Work:
        """Return the call of a function of the host that a record describes."""
        function, data = (ctypes.c_uint64 * 2).from_address(parameters)
        return lambda: self.call_host(0, function, data)

    def cuGraphAddMemsetNode(
        self, graph: Handle, dependencies: Pointer, count: U64, parameters: Pointer, context: Handle = 0
    ) -> Annotated[Handle, "node"]:
        """Return a new node that fills memory."""
        return self.add_to(graph, dependencies, count, NodeKind.MEMSET, self.fill_work(parameters)).handle

    def fill_work(self, parameters: int) -> Work:
        """Return a fill of rows that a record describes: address, pitch, value, bytes, width, height."""
        place, pitch = (ctypes.c_uint64 * 2).from_address(parameters)
        value, size = (ctypes.c_uint32 * 2).from_address(parameters + 16)
        width, height = (ctypes.c_uint64 * 2).from_address(parameters + 24)
        if size not in (1, 2, 4):
            raise DriverError(Result.INVALID_VALUE, f"elements of {size} bytes cannot be filled")
        return lambda: self.fill_box(Box(place, pitch, height), value, size, width, height)

    def cuGraphAddKernelNode_v2(
        self, graph: Handle, dependencies: Pointer, count: U64, parameters: Pointer
    ) -> Annotated[Handle, "node"]:
        """Return a new node that launches a kernel."""
        return self.add_to(graph, dependencies, count, NodeKind.KERNEL, self.node_kernel(parameters)).handle

    def node_kernel(self, parameters: int) -> Work:
        """Return the launch that a record describes: function, sizes, shared memory, arguments."""
        function = ctypes.c_uint64.from_address(parameters).value
        sizes = list((ctypes.c_uint32 * 7).from_address(parameters + 8))
        arguments, extra = (ctypes.c_uint64 * 2).from_address(parameters + 40)
        return self.kernel_work(function, sizes, arguments, extra)

    def cuGraphAddDependencies(self, graph: Handle, before: Pointer, after: Pointer, count: U64) -> None:
        """Let nodes depend on others."""
        for first, then in zip(self.nodes_at(before, count), self.nodes_at(after, count), strict=True):
            then.before.append(first)

    def cuGraphAddDependencies_v2(
        self, graph: Handle, before: Pointer, after: Pointer, data: Pointer, count: U64
    ) -> None:
        """Let nodes depend on others."""
        self.cuGraphAddDependencies(graph, before, after, count)

    def cuGraphDestroyNode(self, node: Handle) -> None:
        """Remove a node from its graph."""
        gone = self.forget(node, Node)
        for graph in [value for value in self._known.values() if isinstance(value, Graph)]:
            if gone in graph.nodes:
                graph.nodes.remove(gone)
                for later in graph.nodes:
                    later.before = [other for other in later.before if other is not gone]

    def cuGraphNodeGetType(self, node: Handle) -> Annotated[I32, "type", 1]:
        """Return what a node does."""
        return int(self.known(node, Node).kind)

    def cuGraphGetNodes(self, graph: Handle, nodes: Pointer, count: Pointer) -> None:
        """Write the nodes of a graph, or how many there are."""
        _write_nodes(self.known(graph, Graph).nodes, nodes, count)

    def cuGraphGetRootNodes(self, graph: Handle, nodes: Pointer, count: Pointer) -> None:
        """Write the nodes that depend on no other, or how many there are."""
        _write_nodes([node for node in self.known(graph, Graph).nodes if not node.before], nodes, count)

    def cuGraphNodeGetDependencies(self, node: Handle, nodes: Pointer, count: Pointer) -> None:
        """Write the nodes that a node depends on, or how many there are."""
        _write_nodes(self.known(node, Node).before, nodes, count)

    def _copied(self, graph: Graph) -> tuple[Graph, dict[Node, Node]]:
        """Return a copy of a graph, and the copy of each node."""
        copies = {node: Node(node.kind, node.work, [], 0, node.graph, node.line) for node in graph.nodes}
        for node, copy in copies.items():
            copy.before = [copies[other] for other in node.before]
            copy.handle = self.handle(copy)
        return Graph(list(copies.values())), copies

    def cuGraphClone(self, graph: Handle) -> Annotated[Handle, "clone"]:
        """Return a copy of a graph."""
        clone, copies = self._copied(self.known(graph, Graph))
        number = self.handle(clone)
        self._clones[number] = {node.handle: copy.handle for node, copy in copies.items()}
        return number

    def cuGraphNodeFindInClone(self, node: Handle, graph: Handle) -> Annotated[Handle, "copy"]:
        """Return the copy of a node in a copied graph."""
        copy = self._clones.get(graph, {}).get(node)
        if copy is None:
            raise DriverError(Result.INVALID_VALUE, "the graph has no copy of the node")
        return copy

    # executable graphs --------------------------------------------------------------------------------------

    def cuGraphInstantiateWithFlags(self, graph: Handle, flags: U64) -> Annotated[Handle, "executable"]:
        """Return a graph that can be launched."""
        order = self.known(graph, Graph).in_order()
        return self.handle(ExecutableGraph(order, {node: node.work for node in order}))

    def cuGraphInstantiateWithParams(
        self, graph: Handle, parameters: Pointer
    ) -> Annotated[Handle, "executable"]:
        """Return a graph that can be launched."""
        return self.cuGraphInstantiateWithFlags(graph, 0)

    def cuGraphExecDestroy(self, executable: Handle) -> None:
        """Forget an executable graph: its handle is none from now on."""
        self.forget(executable, ExecutableGraph)

    def cuGraphUpload(self, executable: Handle, stream: Handle) -> None:
        """Do nothing: a graph is where it runs."""
        self.known(executable, ExecutableGraph)

    def cuGraphLaunch(self, executable: Handle, stream: Handle) -> None:
        """Run the nodes of a graph, or keep it as a node if the stream is captured."""
        known = self.known(executable, ExecutableGraph)

        def work() -> None:
            self._run(known.order, lambda node: () if node in known.disabled else known.work[node](), stream)

        self.enqueue(stream, NodeKind.GRAPH, work)

    def _run(self, order: Sequence[Node], work: Callable[[Node], object], stream: int = 0) -> None:
        """Do the work of nodes; each follows those that it depends on, and earlier work of the stream."""
        if self.races is None:
            for node in order:
                work(node)
            return
        clocks, own, outer = self.races.order, self.stream_key(stream), getattr(self.thread, "node", None)
        begin, ends = clocks.moment(own), dict[Node, Clock]()
        for node in order:
            key = (NODE, node.handle)
            clocks.add(key, is_blocking=False)
            for clock in (begin, *(ends[earlier] for earlier in node.before if earlier in ends)):
                clocks.wait(key, clock)
            self.thread.node = key, node.line
            try:
                work(node)
            finally:
                self.thread.node = outer
            ends[node] = clocks.moment(key)
        for clock in ends.values():
            clocks.wait(own, clock)

    def set_work(self, executable: int, node: int, work: Work) -> None:
        """Change what a node of an executable graph does."""
        known, place = self.known(executable, ExecutableGraph), self.known(node, Node)
        if place not in known.work:
            raise DriverError(Result.INVALID_VALUE, "the executable graph has no such node")
        known.work[place] = work

    def cuGraphExecKernelNodeSetParams_v2(
        self, executable: Handle, node: Handle, parameters: Pointer
    ) -> None:
        """Change the launch of a node of an executable graph."""
        self.set_work(executable, node, self.node_kernel(parameters))

    def cuGraphKernelNodeSetParams_v2(self, node: Handle, parameters: Pointer) -> None:
        """Change the launch of a node."""
        self.known(node, Node).work = self.node_kernel(parameters)

    def cuGraphNodeSetEnabled(self, executable: Handle, node: Handle, enabled: U32) -> None:
        """Let a node of an executable graph run or not."""
        disabled = self.known(executable, ExecutableGraph).disabled
        (disabled.discard if enabled else disabled.add)(self.known(node, Node))

    def cuGraphNodeGetEnabled(self, executable: Handle, node: Handle) -> Annotated[U32, "enabled", 2]:
        """Return whether a node of an executable graph runs."""
        return int(self.known(node, Node) not in self.known(executable, ExecutableGraph).disabled)

    def cuGraphExecUpdate_v2(self, executable: Handle, graph: Handle, info: Pointer) -> None:
        """Take the work of a graph that has the same nodes in the same order."""
        known, order = self.known(executable, ExecutableGraph), self.known(graph, Graph).in_order()
        if [node.kind for node in order] != [node.kind for node in known.order]:
            if info:
                ctypes.c_int32.from_address(info).value = _TOPOLOGY_CHANGED
            raise DriverError(Result.GRAPH_EXEC_UPDATE_FAILURE, "the graph has other nodes than before")
        for node, new in zip(known.order, order, strict=True):
            known.work[node] = new.work
        if info:
            ctypes.c_int32.from_address(info).value = 0


#: CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED.
_TOPOLOGY_CHANGED = 2


def with_copy(method: Callable[[int], None], record: int, size: int) -> Work:
    """Return the call of a method with a copy of a record that lies in memory now."""
    copy = ctypes.create_string_buffer(ctypes.string_at(record, size), size)
    return lambda: method(ctypes.addressof(copy))


def _write_nodes(nodes: Sequence[Node], place: int, count: int) -> None:
    """Write the handles of nodes to memory that has room for some, and how many there are."""
    room = ctypes.c_uint64.from_address(count)
    if place:
        most = min(room.value, len(nodes))
        (ctypes.c_uint64 * most).from_address(place)[:] = [node.handle for node in nodes[:most]]
    room.value = len(nodes)
