"""`cuda.bindings.runtime` under a virtual GPU, and the driver in a process that was forked."""

import ctypes
import multiprocessing
import os

import numpy as np
import pytest

import lanewise as lw
from lanewise.virtual_gpu.devices import find_device
from lanewise.virtual_gpu.driver import Driver
from lanewise.virtual_gpu.driver.results import Result


def test_memory_streams_events_and_graphs_by_the_functions_of_the_module(
    capfd: pytest.CaptureFixture[str],
) -> None:
    pytest.importorskip("cuda.bindings.runtime")
    with lw.virtual_gpu("H100"):
        from cuda.bindings import runtime

        success = runtime.cudaError_t.cudaSuccess
        kinds = runtime.cudaMemcpyKind
        assert runtime.cudaGetDeviceCount() == (success, 1)
        sent, received = np.arange(64, dtype=np.int32), np.zeros(64, np.int32)
        error, memory = runtime.cudaMalloc(256)
        assert error == success
        assert runtime.cudaMemcpy(memory, sent.ctypes.data, 256, kinds.cudaMemcpyHostToDevice) == (success,)
        error, stream = runtime.cudaStreamCreate()
        assert error == success and isinstance(stream, runtime.cudaStream_t)
        error, event = runtime.cudaEventCreate()
        assert runtime.cudaMemsetAsync(memory, 0, 16, stream) == (success,)
        assert runtime.cudaEventRecord(event, stream) == (success,)
        assert runtime.cudaStreamSynchronize(stream) == (success,)
        back = (received.ctypes.data, memory, 256, kinds.cudaMemcpyDeviceToHost)
        assert runtime.cudaMemcpy(*back) == (success,)
        assert received.tolist() == [0] * 4 + list(range(4, 64))
        error, graph = runtime.cudaGraphCreate(0)
        assert error == success and isinstance(graph, runtime.cudaGraph_t)
        assert runtime.cudaFree(memory) == (success,)
        assert runtime.cudaFree(memory)[0] == runtime.cudaError_t.cudaErrorInvalidValue
        with pytest.raises(lw.LanewiseError, match="cudaGetDeviceProperties"):
            runtime.cudaGetDeviceProperties(0)
        with pytest.raises(TypeError, match=r"cudaFree takes 1 arguments \(address\), not 2"):
            runtime.cudaFree(1, 2)
    assert "cudaFree:" in capfd.readouterr().err


def test_nodes_of_a_captured_graph_are_listed_as_the_module_lists_them(
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Without a number they are counted alone, as CuTe DSL's benchmarks do after a capture."""
    pytest.importorskip("cuda.bindings.runtime")
    with lw.virtual_gpu("H100"):
        from cuda.bindings import runtime

        success = runtime.cudaError_t.cudaSuccess
        _, memory = runtime.cudaMalloc(64)
        _, stream = runtime.cudaStreamCreate()
        mode = runtime.cudaStreamCaptureMode.cudaStreamCaptureModeThreadLocal
        assert runtime.cudaStreamBeginCapture(stream, mode) == (success,)
        for value in (1, 2):
            assert runtime.cudaMemsetAsync(memory, value, 64, stream) == (success,)
        _, graph = runtime.cudaStreamEndCapture(stream)
        assert runtime.cudaGraphGetNodes(graph) == (success, [], 2)
        error, nodes, count = runtime.cudaGraphGetNodes(graph, 2)
        assert (error, count, len({int(each) for each in nodes})) == (success, 2, 2)
        assert all(isinstance(each, runtime.cudaGraphNode_t) for each in nodes)
        error, roots, count = runtime.cudaGraphGetRootNodes(graph, 1)
        assert (error, [int(each) for each in roots], count) == (success, [int(nodes[0])], 1)
        assert runtime.cudaGraphGetNodes(0)[0] != success
    assert "cudaGraphGetNodes:" in capfd.readouterr().err


def _asked_in_child(driver: Driver, answers: "multiprocessing.SimpleQueue[int]") -> None:
    answers.put(int(driver.call("cuInit", [0])))
    place = ctypes.c_uint64()
    answers.put(int(driver.call("cuMemAlloc_v2", [ctypes.addressof(place), 64])))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("is_used", [False, True])
def test_a_forked_process_has_the_gpu_only_if_nobody_used_it_before(is_used: bool) -> None:
    driver = Driver(find_device("H100"))
    if is_used:
        assert driver.call("cuInit", [0]) == Result.SUCCESS
    context = multiprocessing.get_context("fork")
    answers = context.SimpleQueue()
    child = context.Process(target=_asked_in_child, args=(driver, answers))
    child.start()
    wanted = int(Result.NOT_INITIALIZED if is_used else Result.SUCCESS)
    assert [answers.get(), answers.get()] == [wanted, wanted]
    child.join()
    assert driver.call("cuInit", [0]) == Result.SUCCESS
