"""Launches on the GPU: arguments of every library, streams, errors, the cache; and the machine's bits.

The machine is the oracle: what it leaves in NumPy arrays, the GPU leaves in CUDA arrays.
"""

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lanewise as lw
from gpu.both import Both
from gpu.device import torch_here
from lanewise import gpu
from lanewise.gpu import assemble
from lanewise.gpu.device import context
from lanewise.gpu.loading import loaded
from lanewise.launch import watched
from lanewise.ptx import parse

torch = torch_here()

#: Writes its arguments, as they reach it, one a thread-block word: the machine and the GPU must agree.
COLLECT = """
.version 8.0
.target sm_80
.address_size 64
.visible .entry collect(
    .param .u64 out, .param .s8 a, .param .u16 b, .param .s32 c, .param .f32 d, .param .f64 e,
    .param .align 8 .b8 s[24], .param .u64 more, .param .b32 f)
{
    .reg .b64 %rd<4>; .reg .b32 %r<4>; .reg .b16 %h<4>;
    ld.param.u64 %rd0, [out];
    ld.param.s8 %r0, [a];       st.global.u32 [%rd0], %r0;
    ld.param.u16 %h0, [b];      st.global.u16 [%rd0+4], %h0;
    ld.param.u32 %r0, [c];      st.global.u32 [%rd0+8], %r0;
    ld.param.b32 %r0, [d];      st.global.u32 [%rd0+12], %r0;
    ld.param.b64 %rd1, [e];     st.global.u64 [%rd0+16], %rd1;
    ld.param.b64 %rd1, [s];     st.global.u64 [%rd0+24], %rd1;
    ld.param.b64 %rd1, [s+8];   st.global.u64 [%rd0+32], %rd1;
    ld.param.b64 %rd1, [s+16];  st.global.u64 [%rd0+40], %rd1;
    ld.param.u64 %rd1, [more];  ld.global.u64 %rd2, [%rd1]; st.global.u64 [%rd0+48], %rd2;
    ld.param.b32 %r0, [f];      st.global.u32 [%rd0+56], %r0;
    ret;
}
.visible .entry add(.param .u64 x, .param .s32 n, .param .s32 value)
{
    .reg .b64 %rd<2>; .reg .b32 %r<6>; .reg .pred %p;
    mov.u32 %r0, %tid.x; mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x;
    mad.lo.s32 %r0, %r1, %r2, %r0;
    ld.param.s32 %r3, [n]; setp.ge.s32 %p, %r0, %r3;
    @%p ret;
    ld.param.u64 %rd0, [x]; mad.wide.s32 %rd0, %r0, 4, %rd0;
    ld.param.s32 %r4, [value];
    ld.global.u32 %r5, [%rd0]; add.s32 %r5, %r5, %r4; st.global.u32 [%rd0], %r5;
    ret;
}
.visible .entry spin(.param .u64 x, .param .u64 nanoseconds)
{
    .reg .b64 %rd<4>; .reg .pred %p;
    ld.param.u64 %rd1, [nanoseconds];
    mov.u64 %rd2, %globaltimer; add.u64 %rd1, %rd1, %rd2;
again:
    mov.u64 %rd2, %globaltimer; setp.lt.u64 %p, %rd2, %rd1;
    @%p bra again;
    ld.param.u64 %rd0, [x]; st.global.u64 [%rd0], %rd2;
    ret;
}
.extern .shared .align 16 .b8 room[];
.visible .entry through_shared(.param .u64 x, .param .s32 last)
{
    .reg .b64 %rd<2>; .reg .b32 %r<5>;
    mov.u32 %r0, %tid.x; ld.param.u64 %rd0, [x]; mad.wide.u32 %rd0, %r0, 4, %rd0;
    ld.global.u32 %r1, [%rd0];
    ld.param.s32 %r2, [last]; mov.u32 %r3, room; mad.lo.s32 %r4, %r0, -4, %r2; add.u32 %r3, %r3, %r4;
    st.shared.u32 [%r3], %r1; bar.sync 0;
    ld.shared.u32 %r1, [%r3]; add.u32 %r1, %r1, 1; st.global.u32 [%rd0], %r1;
    ret;
}
"""


class Interface:
    """An array that has `__cuda_array_interface__` and nothing else."""

    def __init__(self, tensor: Any) -> None:
        self.__cuda_array_interface__ = {
            "shape": tuple(tensor.shape),
            "typestr": "|u1",
            "data": (tensor.data_ptr(), False),
            "strides": tuple(tensor.stride()),
            "version": 3,
            "stream": 1,
        }
        self.tensor = tensor


class Packed:
    """An array that has DLPack and nothing else."""

    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor

    def __dlpack__(self, **options: Any) -> Any:
        return self.tensor.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[Any, int]:
        return self.tensor.__dlpack_device__()


def of_cupy(tensor: Any) -> Any:
    return pytest.importorskip("cupy").from_dlpack(tensor)


KINDS: dict[str, Callable[[Any], Any]] = {
    "torch": lambda tensor: tensor,
    "cupy": of_cupy,
    "interface": Interface,
    "dlpack": Packed,
}


@pytest.fixture
def module() -> lw.Module:
    return parse(COLLECT)


def on_gpu(array: np.ndarray) -> Any:
    return torch.from_numpy(array.copy()).cuda()


@pytest.mark.parametrize("kind", KINDS)
def test_arguments_arrive_as_on_the_machine(kind: str, module: lw.Module) -> None:
    struct = np.zeros((), np.dtype([("x", "f8"), ("n", "i4", (3,)), ("m", "u2")], align=True))
    struct["x"], struct["n"], struct["m"] = -1.5, (1, -2, 3), 40_000
    more = np.array([0x0123456789ABCDEF], np.uint64)
    for numbers in (
        (-3, 65535, -(2**31), 1.1, 2.5),
        (True, 0, 7, 3, -1e300),
        (127, 1, -1, np.float32(0.1), 1),
    ):
        for given in (struct, struct.tobytes()):
            for extra in (-1, 1.5, np.float32(2.5), 0xFFFFFFFF):
                expected = np.zeros(64, np.uint8)
                module["collect"][1, 1](expected, *numbers, given, more, extra)
                out, other = on_gpu(np.zeros(64, np.uint8)), on_gpu(more.view(np.uint8))
                for _ in range(2):
                    out.zero_()
                    module["collect"][1, 1](KINDS[kind](out), *numbers, given, KINDS[kind](other), extra)
                    torch.cuda.synchronize()
                    assert out.cpu().numpy().tobytes() == expected.tobytes()


@pytest.mark.parametrize("kind", KINDS)
def test_warm_launches_do_what_cold_ones_do(kind: str, module: lw.Module) -> None:
    x = on_gpu(np.arange(1000, dtype=np.int32))
    for value in (1, -5, 2**31 - 1, 7):
        module["add"][8, 128](KINDS[kind](x.view(torch.uint8)), 1000, value)
    torch.cuda.synchronize()
    total = np.int32((1 - 5 + 2**31 - 1 + 7) - 2**32)
    assert (x.cpu().numpy() == np.arange(1000, dtype=np.int32) + total).all()
    warm = module["add"][8, 128]._plans
    assert bool(warm) == (kind in ("torch", "cupy"))


def test_repeated_launches_are_compiled(module: lw.Module) -> None:
    """Machine code takes over after a while: it does the same, and hands over the same."""
    x = on_gpu(np.zeros((8, 8), np.int32))
    kernel = module["add"][1, 64]
    for number in range(40):
        kernel(x if number % 2 else x.t(), 64, number)
    for wrong, message in (((x[:, ::2], 32, 1), "must be contiguous"), ((x, 64, 2**31), "does not fit")):
        with pytest.raises(lw.LanewiseError, match=message):
            kernel(*wrong)
    kernel(x, 64, True)
    torch.cuda.synchronize()
    assert (x == sum(range(40)) + 1).all()
    (plan,) = [each for each in kernel._plans if each.types[2] is int]
    assert (plan.native is not None) == hasattr(torch.Tensor, "__dlpack_c_exchange_api__")


def test_a_plan_hands_over_what_it_cannot_take(module: lw.Module) -> None:
    x = on_gpu(np.zeros(64, np.int32))
    kernel = module["add"][1, 64]
    kernel(x, 64, 1)
    for wrong, message in (
        ((x, 64), "3 arguments"),
        ((x, 64, 2**31), "does not fit"),
        ((x, 64, 1.5), "cannot be passed"),
        ((x[::2], 32, 1), "must be contiguous"),
        ((x, 64, x), "takes a number"),
    ):
        with pytest.raises(lw.LanewiseError, match=message):
            kernel(*wrong)
    host = x.cpu()
    kernel(host, 64, 5)  # on the CPU, where the tensor lies
    assert (host == 6).all()
    kernel(x, np.int64(64), np.int8(2))
    kernel(x.view(8, 8).t(), 64, True)
    kernel(torch.nn.Parameter(x.float().view(8, 8)).data.view(torch.int32), 0, 1)
    torch.cuda.synchronize()
    assert (x == 4).all()


def test_places_that_do_not_fit_together_are_named(module: lw.Module) -> None:
    out, host = on_gpu(np.zeros(64, np.uint8)), np.zeros(64, np.uint8)
    arguments = (1, 2, 3, 4.0, 5.0, bytes(24))
    for both in ((out, host), (host, out)):
        with pytest.raises(lw.LanewiseError, match=r"is in host memory \(NumPy\)") as caught:
            module["collect"][1, 1](both[0], *arguments, both[1], 0)
        assert "on cuda:0 (torch)" in str(caught.value) and "(more)" in str(caught.value)
    with pytest.raises(lw.LanewiseError, match="for NumPy arrays, on the CPU machine"):
        module["add"][1, 1](out, 0, 0, steps=5)
    with pytest.raises(lw.LanewiseError, match="arch='sm_75' says which GPU"):
        module["add"][1, 1](out, 0, 0, arch="sm_75")
    with pytest.raises(lw.LanewiseError, match="in host memory"):
        module["add"][1, 1](host, 0, 0, stream=0)


def streams() -> Iterator[tuple[str, Callable[[Any], Any]]]:
    yield "torch", lambda stream: stream
    yield "integer", lambda stream: stream.cuda_stream
    yield "cupy", lambda stream: pytest.importorskip("cupy").cuda.ExternalStream(stream.cuda_stream)

    class Protocol:
        def __init__(self, stream: Any) -> None:
            self.stream = stream

        def __cuda_stream__(self) -> tuple[int, int]:
            return 0, self.stream.cuda_stream

    yield "protocol", Protocol

    def of_core(stream: Any) -> Any:
        core = pytest.importorskip("cuda.core")
        core.Device(0).set_current()
        return core.Stream.from_handle(stream.cuda_stream)

    yield "cuda-core", of_core


@pytest.mark.filterwarnings("ignore:ExternalStream is deprecated")  # what older CuPy has
@pytest.mark.parametrize(("name", "make"), list(streams()), ids=[name for name, _ in streams()])
def test_a_launch_is_on_the_stream_that_was_given(
    name: str, make: Callable[[Any], Any], module: lw.Module
) -> None:
    x, stream = on_gpu(np.zeros(1, np.int64)), torch.cuda.Stream()
    torch.cuda.synchronize()
    given = make(stream)
    kernel = module["spin"][1, 1]
    kernel(x, 0, stream=given)
    torch.cuda.synchronize()
    kernel(x, 30_000_000, stream=given)
    assert not stream.query()
    assert torch.cuda.current_stream().query()
    torch.cuda.synchronize()
    assert stream.query() and x.item() > 0


def test_the_stream_of_the_moment_is_taken_from_the_library(module: lw.Module) -> None:
    cupy = pytest.importorskip("cupy")
    x, stream = on_gpu(np.zeros(1, np.int64)), torch.cuda.Stream()
    kernel = module["spin"][1, 1]
    kernel(x, 0)
    torch.cuda.synchronize()
    for _ in range(2):
        with torch.cuda.stream(stream):
            kernel(x, 30_000_000)
        assert not stream.query() and torch.cuda.current_stream().query()
        torch.cuda.synchronize()
    other = cupy.cuda.Stream(non_blocking=True)
    array = cupy.zeros(1, np.int64)
    cupy.cuda.Device(0).synchronize()
    for _ in range(2):
        with other:
            kernel(array, 30_000_000)
        assert not other.done and torch.cuda.current_stream().query()
        torch.cuda.synchronize()


def test_launches_are_captured_in_a_graph(module: lw.Module) -> None:
    x = on_gpu(np.zeros(64, np.int32))
    kernel = module["add"][1, 64]
    kernel(x, 64, 0)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kernel(x, 64, 1)
        kernel(x, 64, 2)
    for _ in range(5):
        graph.replay()
    torch.cuda.synchronize()
    assert (x == 15).all()


def test_threads_launch_the_same_kernel_at_once(module: lw.Module) -> None:
    tensors = [on_gpu(np.zeros(64, np.int32)) for _ in range(8)]
    torch.cuda.synchronize()
    kernel = module["add"][1, 64]
    errors: list[Exception] = []

    def work(number: int) -> None:
        try:
            for _ in range(500):
                kernel(tensors[number], 64, number)
            torch.cuda.synchronize()
        except Exception as error:
            errors.append(error)

    workers = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not errors
    assert [int(tensor.sum()) for tensor in tensors] == [64 * 500 * number for number in range(8)]


def test_dynamic_shared_memory_beyond_48_kilobytes(module: lw.Module) -> None:
    most = context(0).device.most_shared
    for size in (4096, 100 * 1024, most, 60 * 1024):
        x = on_gpu(np.arange(256, dtype=np.int32))
        module["through_shared"][1, 256, size](x, size - 4)
        torch.cuda.synchronize()
        assert (x.cpu().numpy() == np.arange(256) + 1).all()
    with pytest.raises(gpu.GpuError, match=f"through_shared: {most + 16} bytes of shared memory") as caught:
        module["through_shared"][1, 256, most + 16](x, 0)
    assert str(most) in str(caught.value) and caught.value.kernel == "through_shared"


def test_too_many_threads_for_the_registers() -> None:
    names = [f"%f{number}" for number in range(120)]
    loads = "\n".join(f"ld.volatile.global.f32 {name}, [%rd0+{4 * n}];" for n, name in enumerate(names))
    stores = "\n".join(f"st.volatile.global.f32 [%rd0+{4 * n}], {name};" for n, name in enumerate(names))
    text = (
        ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry wide(.param .u64 x)\n{\n"
        f".reg .b64 %rd0; .reg .f32 %f<120>;\nld.param.u64 %rd0, [x];\n{loads}\n{stores}\nret;\n}}"
    )
    x = on_gpu(np.zeros(120, np.float32))
    kernel = parse(text)["wide"]
    kernel[1, 32](x)
    assert kernel.resources("sm_90").threads == loaded(kernel, context(0)).most_threads
    with pytest.raises(
        gpu.GpuError, match=r"wide: 1024 threads a block are too many: with its 1.. registers"
    ):
        kernel[1, 1024](x)


def run_alone(script: str, **environment: str) -> str:
    """What a process of its own prints."""
    source = Path(lw.__file__).parent.parent
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=os.environ | {"PYTHONPATH": str(source)} | environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_an_illegal_address_names_the_kernel_and_says_that_the_context_is_lost() -> None:
    text = (
        ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry wild(.param .u64 x, .param .u64 y)\n"
        "{ .reg .b64 %rd; ld.param.u64 %rd, [y]; st.global.u64 [%rd], %rd; ret; }"
    )
    said = run_alone(f"""
import torch, lanewise as lw
from lanewise import gpu
kernel = lw.load({text!r})["wild"][1, 1]
x = torch.zeros(1, device="cuda")
kernel(x, 64)
for call in (gpu.synchronize, lambda: kernel(x, 64), lambda: kernel(x, x)):
    try:
        call()
        print("nothing")
    except gpu.GpuError as error:
        print(error.code, error.lost, str(error).split(":")[0], "context is lost" in str(error))
""")
    assert said.splitlines() == ["CUDA_ERROR_ILLEGAL_ADDRESS True wild True"] * 3


def test_a_thread_without_a_context_launches(module: lw.Module) -> None:
    text = COLLECT
    said = run_alone(f"""
import threading, torch, lanewise as lw
x = torch.zeros(64, dtype=torch.int32, device="cuda")
kernel = lw.load({text!r})["add"][1, 64]
kernel(x, 64, 1)
kernel(x, 64, 1)
def work():
    stream = torch.cuda.default_stream().cuda_stream
    kernel(x, 64, 1, stream=stream)
    kernel(x, 64, 1, stream=stream)
worker = threading.Thread(target=work)
worker.start(); worker.join()
print(int(x.sum()))
""")
    assert said.strip() == str(4 * 64)


def test_machine_code_is_kept_and_read_by_the_next_process(tmp_path: Path) -> None:
    script = f"""
import torch, lanewise as lw
from lanewise.gpu import assemble
made = []
assemble.assemble = lambda *arguments, real=assemble.assemble: made.append(1) or real(*arguments)
x = torch.zeros(64, dtype=torch.int32, device="cuda")
for _ in range(2):
    lw.load({COLLECT!r})["add"][1, 64](x, 64, 1)
print(len(made), int(x.sum()))
"""
    kept = {"LANEWISE_CACHE_DIR": str(tmp_path)}
    assert run_alone(script, **kept).split() == ["1", "128"]
    (path,) = tmp_path.glob("*.cubin")
    assert run_alone(script, **kept).split() == ["0", "128"]
    path.write_bytes(path.read_bytes()[:-50] + bytes(50))  # damaged: assembled anew
    assert run_alone(script, **kept).split() == ["1", "128"]


@pytest.mark.parametrize("by", ["ptxas", "driver"])
@pytest.mark.parametrize("version", ["8.0", "9.9"])
def test_ptx_of_a_newer_version_is_lowered(
    by: str, version: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("LANEWISE_CACHE_DIR", str(tmp_path))
    if by == "driver":
        monkeypatch.setattr(assemble, "_assemblers", tuple)
    elif not assemble._assemblers():
        pytest.skip("no ptxas here")
    x = on_gpu(np.zeros(64, np.int32))
    parse(COLLECT.replace(".version 8.0", f".version {version}"))["add"][1, 64](x, 64, 3)
    torch.cuda.synchronize()
    assert (x == 3).all()


def test_ptx_that_the_driver_refuses_is_said_with_its_log(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("LANEWISE_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(assemble, "_assemblers", tuple)
    x = on_gpu(np.zeros(64, np.int32))
    broken = parse(COLLECT.replace("st.shared.u32 [%r3], %r1; bar.sync 0;", "st.shared.u32 [%r3], %nothing;"))
    with pytest.raises(gpu.GpuError, match=r"(?s)add: CUDA_ERROR_INVALID_PTX.*nothing"):
        broken["add"][1, 64](x, 64, 3)


def test_targets(module: lw.Module) -> None:
    arch = context(0).device.arch
    number = int(arch[3:])
    x = on_gpu(np.zeros(64, np.int32))
    own = parse(COLLECT.replace("sm_80", f"{arch}a" if number >= 90 else arch))
    own["add"][1, 64](x, 64, 3, arch=arch)
    torch.cuda.synchronize()
    assert (x == 3).all()
    for target in ("sm_121", "sm_90a", "sm_120f"):
        if number != 121 and not (target == "sm_90a" and number == 90):
            with pytest.raises(lw.LanewiseError, match=f"this PTX is for {target}"):
                parse(COLLECT.replace("sm_80", target).replace("8.0", "8.8"))["add"][1, 64](x, 64, 3)


def test_variables_of_a_module_are_its_own(module: lw.Module) -> None:
    text = (
        ".version 8.0\n.target sm_80\n.address_size 64\n.global .u32 count = 5;\n"
        ".visible .entry step(.param .u64 x) { .reg .b64 %rd; .reg .b32 %r<2>;\n"
        "ld.global.u32 %r0, [count]; add.u32 %r0, %r0, 1; st.global.u32 [count], %r0;\n"
        "ld.param.u64 %rd, [x]; st.global.u32 [%rd], %r0; ret; }"
    )
    first, second = parse(text), parse(text)
    x = on_gpu(np.zeros(1, np.int32))
    seen = []
    for each in (first, first, second, first):
        each["step"][1, 1](x)
        seen.append(x.item())
    assert seen == [6, 7, 6, 8]


def test_the_device_is_described() -> None:
    (first, *_) = gpu.devices()
    major, minor = torch.cuda.get_device_capability(0)
    assert first.arch == f"sm_{major}{minor}" and first.name == torch.cuda.get_device_name(0)
    assert first.multiprocessors == torch.cuda.get_device_properties(0).multi_processor_count
    assert gpu.available() and first.cuda.count(".") == 1


def test_jax_and_numba_arrays(module: lw.Module) -> None:
    script = f"""
import numpy as np, lanewise as lw, {{library}}
kernel = lw.load({COLLECT!r})["add"][1, 64]
x = {{make}}
for value in (1, 2):
    kernel(x, 64, value)
lw.gpu.synchronize()
print(int(np.asarray({{back}}).sum()))
"""
    makers = {
        "jax": ("jax.block_until_ready(jax.numpy.zeros(64, 'int32'))", "x"),
        "numba.cuda": ("numba.cuda.to_device(np.zeros(64, 'i4'))", "x.copy_to_host()"),
    }
    ran = []
    for library, (make, back) in makers.items():
        try:
            __import__(library)
        except ImportError:
            continue
        filled = script.replace("{library}", library).replace("{make}", make).replace("{back}", back)
        assert run_alone(filled, XLA_PYTHON_CLIENT_PREALLOCATE="false").split()[-1] == str(3 * 64)
        ran.append(library)
    if not ran:
        pytest.skip("neither JAX nor Numba is here")


# the machine's bits ------------------------------------------------------------------------------------


def corpus() -> Iterator[tuple[str, Callable[[], None]]]:
    """Tests of the machine whose kernels give the same bits every time, as calls."""
    from shared_tests import classics, hand_loaded, language, products

    for test in (
        classics.test_sum_by_shuffles_in_the_order_of_the_kernel,
        classics.test_the_last_block_adds_what_the_others_left,
        classics.test_cooperative_groups,
        classics.test_histogram_of_bytes,
        classics.test_transposes,
        language.test_variables_of_the_device_keep_their_values,
        language.test_structs_by_value,
        language.test_templates_are_made_when_asked_for,
        language.test_local_arrays,
        language.test_dynamic_shared_memory,
        products.test_wmma_product_with_alpha_and_beta,
        products.test_int8_product,
        products.test_products_of_bits,
        products.test_sparse_product_with_metadata,
    ):
        yield test.__name__.removeprefix("test_"), test
    yield "naive_hgemm", lambda: products.test_naive_hgemm("sm_90")
    yield "multistage_hgemm", lambda: products.test_multistage_hgemm(256)
    for inputs, sums, name in (
        ("half", "half", "f16.f16"),
        ("half", "float", "f32.f32"),
        ("__nv_bfloat16", "float", "f32.bf16.bf16.f32"),
    ):
        yield (
            f"wmma_{inputs}_{sums}",
            lambda i=inputs, s=sums, n=name: products.test_wmma_in_all_layouts(i, s, n, "sm_90"),
        )
    for arch in ("sm_75", "sm_80", "sm_90"):
        yield (
            f"mma_new_in_{arch}",
            lambda arch=arch: hand_loaded.test_every_mma_that_a_generation_brought(arch),
        )


CORPUS = dict(corpus())


@pytest.mark.parametrize("name", CORPUS)
def test_the_machine_and_the_gpu_leave_the_same_bits(name: str) -> None:
    """Every launch of a test of the machine is done on both, the machine computing like the GPU at hand."""
    both = Both()
    with watched(both):
        CORPUS[name]()
    assert both.kernels
    assert both.differing == 0
