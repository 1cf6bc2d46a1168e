"""torch's "cuda" tensors under a virtual GPU, with a torch for CPUs."""

import io
import itertools
import platform
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import lanewise as lw
from lanewise.virtual_gpu import VirtualGPU

torch = pytest.importorskip("torch")
if torch.cuda.is_available():
    pytest.skip("torch has a GPU of its own here", allow_module_level=True)


@pytest.fixture
def gpu() -> Iterator[VirtualGPU]:
    with lw.virtual_gpu("H100") as gpu:
        yield gpu


def test_a_tensor_is_where_it_was_asked_for(gpu: VirtualGPU) -> None:
    here, there = torch.zeros(4), torch.zeros(4, device="cuda")
    assert (here.is_cuda, there.is_cuda) == (False, True)
    assert there.device == torch.device("cuda", 0)
    assert there.get_device() == 0
    assert torch.empty(2, device=torch.device("cuda")).is_cuda
    assert torch.empty(2, device=0).is_cuda
    assert not torch.empty(2, device="cpu").is_cuda
    assert there.type() == "torch.cuda.FloatTensor"


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the code is for x86")
def test_tensors_begin_where_device_memory_does(gpu: VirtualGPU) -> None:
    made = [torch.empty(size, dtype=torch.uint8, device="cuda") for size in range(1, 200, 3)]
    made += [(made[40] + 1), made[5].to(torch.float64), torch.from_numpy(np.ones(77)).cuda()]
    assert {each.data_ptr() % 512 for each in made} == {0}


def test_what_is_computed_from_a_device_tensor_is_on_the_device(gpu: VirtualGPU) -> None:
    x = torch.ones(4, 4, device="cuda")
    made = [x + 1, x @ x, x.T, x[0], x.sum(), torch.empty_like(x), torch.cat([x, x]), x.view(-1), x.float()]
    made += [*x.split(2), *torch.max(x, dim=0), x.new_zeros(3), torch.where(x > 0, x, 0)]
    assert all(each.is_cuda for each in made)
    x += 1
    assert x.is_cuda
    assert not (torch.ones(3) + 1).is_cuda


def test_what_is_written_in_place_stays_where_it_is(gpu: VirtualGPU) -> None:
    there = torch.arange(4.0, device="cuda")
    here, rows = torch.zeros(4), torch.zeros(2, 4)
    assert not here.copy_(there).is_cuda and here.numpy().tolist() == [0, 1, 2, 3]
    rows[1].copy_(there)
    assert not rows.is_cuda and rows.sum() == 6
    torch._foreach_copy_([rows[0]], [there])
    assert not rows.is_cuda and rows.sum() == 12
    model = torch.nn.Linear(2, 2)
    model.load_state_dict(torch.nn.Linear(2, 2).cuda().state_dict())
    assert not model.weight.is_cuda and model(torch.ones(1, 2)).shape == (1, 2)
    assert there.copy_(torch.ones(4)).is_cuda
    with pytest.raises(RuntimeError, match="at least two devices"):
        torch.zeros(4) * torch.tensor(2.0, device="cuda")
    assert (there * torch.tensor(2.0)).is_cuda


@pytest.mark.parametrize("accelerator", [None, "cuda"], ids=["for CPUs", "for CUDA"])
def test_compilers_compute_shapes_without_memory(
    accelerator: str | None, gpu: VirtualGPU, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tensors of FakeTensorMode say that they are on the device, and are none of its memory.

    A torch for CUDA says that it has an accelerator, and would first make a tensor on a real one.
    """
    from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda *_: accelerator)
    real = torch.ones(4, 8, device="cuda", dtype=torch.float16)
    with FakeTensorMode() as mode:
        fake = mode.from_tensor(real)
        made = [fake, fake @ fake.T, torch.empty(3, device="cuda"), fake.float(), fake.to("cuda")]
    assert all(isinstance(each, FakeTensor) and each.device.type == "cuda" for each in made)
    assert made[1].shape == (4, 4)
    assert real.is_cuda
    assert float((real @ real.T)[0, 0]) == 8


def test_moves_copy_between_the_sides_and_not_within_one(gpu: VirtualGPU) -> None:
    x = torch.zeros(4)
    for moved in (
        x.cuda(),
        x.to("cuda"),
        x.to(torch.device("cuda", 0)),
        x.to("cuda", torch.float32),
        x.to(0),
    ):
        assert moved.is_cuda
        assert moved.data_ptr() != x.data_ptr()
    y = x.cuda()
    assert y.cuda() is y
    assert y.to("cuda").data_ptr() == y.data_ptr()
    for back in (y.cpu(), y.to("cpu"), y.to(x)):
        assert not back.is_cuda
        assert back.data_ptr() != y.data_ptr()
    assert y.to(torch.float16).is_cuda
    assert not x.to(torch.float16).is_cuda
    assert x.to(y).is_cuda
    y += 1
    assert x.sum() == 0


def test_a_device_tensor_is_no_array_until_it_is_copied(gpu: VirtualGPU) -> None:
    x = torch.arange(3, device="cuda")
    with pytest.raises(TypeError, match="can't convert cuda:0 device type tensor to numpy"):
        x.numpy()
    assert x.cpu().numpy().tolist() == [0, 1, 2] == x.tolist()


def test_modules_and_gradients_are_on_the_device(gpu: VirtualGPU) -> None:
    layer = torch.nn.Linear(4, 2).cuda()
    assert all(parameter.is_cuda for parameter in layer.parameters())
    layer(torch.ones(3, 4, device="cuda")).sum().backward()
    assert layer.weight.grad is not None
    assert layer.weight.grad.device == layer.weight.device


def test_half_precision_norms_have_gradients_as_exact_as_on_a_gpu(gpu: VirtualGPU) -> None:
    torch.manual_seed(3)
    x = torch.randn(1500, 64, dtype=torch.float16, device="cuda")
    weight, bias = (torch.rand(64, dtype=torch.float16, device="cuda", requires_grad=True) for _ in range(2))
    gradient = 0.1 * torch.randn_like(x)
    torch.nn.functional.layer_norm(x, (64,), weight, bias).backward(gradient)
    exact = gradient.double().sum(0)
    assert bias.grad.dtype == torch.float16
    assert (bias.grad.double() - exact).abs().max() <= exact.abs().max() * 2**-11


def test_questions_about_the_device(gpu: VirtualGPU) -> None:
    cuda = torch.cuda
    assert (cuda.is_available(), cuda.device_count(), cuda.current_device()) == (True, 1, 0)
    assert "H100" in cuda.get_device_name()
    assert cuda.get_device_capability() == (9, 0)
    properties = cuda.get_device_properties(0)
    assert (properties.multi_processor_count, properties.total_memory) == (132, 80 * 2**30)
    first, last = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
    first.record()
    with cuda.stream(cuda.Stream()), cuda.device(0):
        torch.zeros(4, device="cuda")
    last.record()
    cuda.synchronize()
    assert first.elapsed_time(last) >= 0


def test_generators_are_classes_and_give_the_same_numbers(gpu: VirtualGPU) -> None:
    assert isinstance(torch.Generator("cuda"), torch.Generator)
    assert torch.Generator | None
    numbers = [
        torch.rand(4, device="cuda", generator=torch.Generator("cuda").manual_seed(5)) for _ in range(2)
    ]
    assert numbers[0].equal(numbers[1])
    assert numbers[0].is_cuda


def test_other_threads_see_the_device_too(gpu: VirtualGPU) -> None:
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as pool:
        made = pool.submit(lambda: torch.zeros(4, device="cuda")).result()
        assert pool.submit(lambda: made.is_cuda).result()
    assert made.is_cuda


def test_the_address_of_a_tensor_is_memory_of_the_device_for_as_long_as_it_lives(gpu: VirtualGPU) -> None:
    x = torch.zeros(1000, device="cuda")
    place = x.data_ptr()
    assert gpu.driver.memory.find(place + 3999) is not None
    assert gpu.driver.memory.find(place + 4000) is None
    view = x[10:]
    del x
    assert view.data_ptr() == place + 40
    assert gpu.driver.memory.find(place) is not None
    del view
    gpu.torch.forget_expired()
    assert gpu.driver.memory.find(place) is None


def test_afterwards_torch_is_as_it_was() -> None:
    before = {name: getattr(torch.cuda, name) for name in ("is_available", "Stream", "synchronize", "device")}
    generator = torch.Generator
    with lw.virtual_gpu("A100"):
        x = torch.zeros(4, device="cuda")
    assert {name: getattr(torch.cuda, name) for name in before} == before
    assert torch.Generator is generator
    assert x.device == torch.device("cpu")
    with pytest.raises((AssertionError, RuntimeError)):
        torch.zeros(4, device="cuda")


def test_a_graph_is_replayed_on_the_same_memory(gpu: VirtualGPU) -> None:
    x, graph = torch.ones(4, device="cuda"), torch.cuda.CUDAGraph()
    with pytest.raises(RuntimeError, match="without a preceding"):
        graph.replay()
    with torch.cuda.graph(graph):
        y = x * 2 + 1
        y[1:].add_(1)
        total = y.sum()
    outside = y + 1
    for value in (10.0, -3.0):
        x.fill_(value)
        graph.replay()
        assert y.tolist() == [2 * value + 1] + [2 * value + 2] * 3
        assert total.item() == sum(y.tolist())
    assert outside.tolist() == [4, 5, 5, 5]
    weight = torch.ones(3, device="cuda", requires_grad=True)
    with (
        pytest.raises(lw.LanewiseError, match="captures no backward"),
        torch.cuda.graph(torch.cuda.CUDAGraph()),
    ):
        (weight * 2).sum().backward()
    assert not torch.cuda.is_current_stream_capturing()
    module = torch.nn.Linear(4, 2).cuda()
    graphed = torch.cuda.make_graphed_callables(module, (x,))
    graphed(x).sum().backward()
    assert graphed.weight.grad.tolist() == [x.tolist()] * 2


@pytest.mark.parametrize("device", ["cuda", "cuda:0", torch.device("cuda")])
def test_a_module_moves_to_the_device(gpu: VirtualGPU, device: object) -> None:
    module = torch.nn.Linear(2, 3).to(device)
    assert module.weight.is_cuda
    assert torch.nn.Linear(2, 3).to(device=device, dtype=torch.float16).bias.is_cuda
    assert not module.to("cpu").weight.is_cuda
    with pytest.raises(RuntimeError, match="the virtual GPU is cuda:0 alone"):
        module.to("cuda:1")


def test_autocast_has_the_types_of_a_gpu(gpu: VirtualGPU) -> None:
    x, module = torch.randn(4, 8, device="cuda"), torch.nn.Linear(8, 8).cuda()
    for kind in (torch.float16, torch.bfloat16):
        with torch.autocast("cuda", dtype=kind):
            assert torch.is_autocast_enabled("cuda")
            y = module(x)
            assert (y.dtype, y.softmax(-1).dtype, y.sum().dtype, (y + y).dtype) == (
                kind, torch.float32, torch.float32, kind,
            )  # fmt: skip
            with torch.autocast("cuda", enabled=False):
                assert module(x).dtype == torch.float32
        assert module(x).dtype == torch.float32
    scaler, optimizer = torch.amp.GradScaler("cuda"), torch.optim.SGD(module.parameters(), lr=1.0)
    before = module.bias.tolist()
    with torch.autocast("cuda"):
        loss = module(x).float().mean()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    assert module.bias.tolist() == pytest.approx([each - 1 / 8 for each in before])


F = torch.nn.functional
#: Functions whose types autocast chooses, with sizes of operands: f16 and f32 ones, and both mixed.
AUTOCAST: dict[str, tuple[Callable[..., Any], list[tuple[int, ...]]]] = {
    "exp": (torch.exp, [(4, 4)]),
    "pow": (lambda x: x**2, [(4, 4)]),
    "softmax": (lambda x: x.softmax(-1), [(4, 4)]),
    "softmax of a given type": (lambda x: x.softmax(-1, dtype=torch.float64), [(4, 4)]),
    "logsumexp": (lambda x: x.logsumexp(-1), [(4, 4)]),
    "sum": (torch.sum, [(4, 4)]),
    "mean": (torch.mean, [(4, 4)]),
    "norm": (torch.norm, [(4, 4)]),
    "vector_norm": (torch.linalg.vector_norm, [(4, 4)]),
    "normalize": (F.normalize, [(4, 4)]),
    "layer_norm": (lambda x: F.layer_norm(x, (4,)), [(4, 4)]),
    "rms_norm": (lambda x: F.rms_norm(x, (4,)), [(4, 4)]),
    "group_norm": (lambda x: F.group_norm(x, 2), [(4, 4)]),
    "cross_entropy": (F.cross_entropy, [(4, 4), (4, 4)]),
    "huber_loss": (F.huber_loss, [(4, 4), (4, 4)]),
    "mse_loss": (F.mse_loss, [(4, 4), (4, 4)]),
    "interpolate": (lambda x: F.interpolate(x, scale_factor=2), [(1, 1, 4, 4)]),
    "mv": (torch.mv, [(4, 4), (4,)]),
    "einsum": (lambda a, b: torch.einsum("ij,kj->ik", a, b), [(4, 4), (4, 4)]),
    "matmul": (torch.matmul, [(4, 4), (4, 4)]),
    "dot": (torch.dot, [(4,), (4,)]),
    "atan2": (torch.atan2, [(4, 4), (4, 4)]),
    "addcmul": (torch.addcmul, [(4, 4), (4, 4), (4, 4)]),
    "add": (torch.add, [(4, 4), (4, 4)]),
    "gelu": (F.gelu, [(4, 4)]),
    "cat": (lambda a, b: torch.cat([a, b]), [(4, 4), (4, 4)]),
}


def autocast_types(operands: Callable[[Any, Any], Any], enter: Callable[[], Any]) -> dict[Any, Any]:
    """Return the type of each function's result under autocast, by name and by the types of its operands."""
    types = {}
    for name, (function, sizes) in AUTOCAST.items():
        for kinds in itertools.product((torch.float16, torch.float32), repeat=len(sizes)):
            made = [operands(size, kind) for size, kind in zip(sizes, kinds, strict=True)]
            with enter():
                types[name, kinds] = function(*made).dtype
    return types


def test_autocast_has_the_types_that_torch_gives_tensors_on_a_gpu() -> None:
    """torch's own autocast for CUDA decides: for tensors without data, which need no GPU."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    @contextmanager
    def autocast() -> Iterator[None]:
        torch.set_autocast_enabled("cuda", True)  # torch.autocast leaves it off without a GPU
        torch.set_autocast_dtype("cuda", torch.float16)
        try:
            yield
        finally:
            torch.set_autocast_enabled("cuda", False)

    def on_device(size: Any, kind: Any) -> Any:
        return torch.empty(size, dtype=kind, device="cuda")

    with FakeTensorMode():
        expected = autocast_types(on_device, autocast)
    with lw.virtual_gpu("H100"):
        assert autocast_types(on_device, lambda: torch.autocast("cuda")) == expected
        x = torch.rand(3, 4).half()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert x.exp().dtype == torch.float16  # the CPU's own rules are as they were
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert x.exp().dtype == torch.float16


@pytest.mark.parametrize("kind", ["SGD", "Adam", "AdamW", "RMSprop"])
def test_optimizers_step(gpu: VirtualGPU, kind: str) -> None:
    module, x = torch.nn.Linear(4, 1).to("cuda"), torch.ones(2, 4, device="cuda")
    torch.nn.init.ones_(module.weight)  # far from where the loss is least
    optimizer = getattr(torch.optim, kind)(module.parameters(), lr=0.01)
    losses = []
    for _ in range(3):
        loss = module(x).square().mean()
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(module.parameters(), 1.0)
        optimizer.step()
    assert losses == sorted(losses, reverse=True)
    assert module.weight.is_cuda


def test_files_keep_the_device(gpu: VirtualGPU) -> None:
    file = io.BytesIO()
    torch.save({"there": torch.ones(2, device="cuda"), "here": torch.ones(2)}, file)
    for where, expected in ((None, [True, False]), ("cuda", [True, True]), ("cpu", [False, False])):
        file.seek(0)
        loaded = torch.load(file, map_location=where)
        assert [each.is_cuda for each in loaded.values()] == expected
        assert loaded["there"].tolist() == [1, 1]


def test_memory_of_tensors_is_counted_and_bounded() -> None:
    with lw.virtual_gpu("A100", memory_gib=0.25):
        start = torch.cuda.memory_allocated()
        x = torch.empty(1 << 20, device="cuda")
        assert torch.cuda.memory_allocated() - start == x.nbytes
        del x
        assert torch.cuda.memory_allocated() == start
        assert torch.cuda.max_memory_allocated() >= start + (4 << 20)
        torch.cuda.reset_peak_memory_stats()
        assert torch.cuda.max_memory_allocated() == start
        assert torch.cuda.memory_stats()["allocated_bytes.all.current"] == start
        assert "CUDA memory summary" in torch.cuda.memory_summary()
        with pytest.raises(torch.cuda.OutOfMemoryError, match="268,435,456 in all"):
            torch.empty(1 << 27, device="cuda")
        with pytest.raises(torch.cuda.OutOfMemoryError):
            torch.empty(1 << 50, device="cuda")
        assert torch.cuda.memory_allocated() == start


def test_data_of_loaders_streams_marks_and_one_device_in_parallel(gpu: VirtualGPU) -> None:
    from torch.utils.data import DataLoader, TensorDataset

    loader = DataLoader(TensorDataset(torch.arange(8.0)), batch_size=4, pin_memory=True)
    assert [each.cuda().sum().item() for (each,) in loader] == [6, 22]
    x = torch.ones(2, 3, device="cuda", requires_grad=True)
    x.detach().record_stream(torch.cuda.Stream())
    torch.cuda.nvtx.range_push("a range")
    torch.cuda.nvtx.range_pop()
    parallel = torch.nn.DataParallel(torch.nn.Linear(3, 3)).cuda()
    parallel(x).sum().backward()
    assert x.grad is not None
    assert x.grad.is_cuda
    with pytest.raises(TypeError, match="to numpy"):
        np.asarray(x)


def test_the_device_may_be_the_default(gpu: VirtualGPU) -> None:
    torch.set_default_device("cuda")
    assert torch.zeros(2).is_cuda
    assert not torch.zeros(2, device="cpu").is_cuda
    assert torch.get_default_device() == torch.device("cuda", 0)
    torch.set_default_device("cpu")
    assert not torch.zeros(2).is_cuda
    with torch.device("cuda"):
        assert torch.zeros(2).is_cuda


def test_compiled_functions_run_as_they_are(gpu: VirtualGPU, capsys: pytest.CaptureFixture[str]) -> None:
    double = torch.compile(lambda x: 2 * x)
    assert double(torch.ones(2, device="cuda")).tolist() == [2, 2]
    assert torch.compile(mode="max-autotune")(len)([1]) == 1
    assert "torch.compile does not compile for a virtual GPU" in capsys.readouterr().err


def test_operands_on_two_devices_are_refused_except_numbers(gpu: VirtualGPU) -> None:
    here, there = torch.ones(2, 2), torch.ones(2, 2, device="cuda")
    for operator in (torch.add, torch.matmul, lambda a, b: a * b, lambda a, b: torch.cat([a, b])):
        with pytest.raises(RuntimeError, match="on the same device"):
            operator(here, there)
    assert (there + torch.tensor(1.0)).is_cuda
    assert (here + 1).tolist() == [[2, 2], [2, 2]]
    there.copy_(here * 3)
    assert there[torch.tensor([0])].tolist() == [[3, 3]]


def test_capsules_name_the_device_and_come_back_to_it(gpu: VirtualGPU) -> None:
    here, there = torch.ones(4), torch.ones(4, device="cuda")
    assert here.__dlpack_device__() == (1, 0) and there.__dlpack_device__() == (2, 0)
    back = torch.from_dlpack(there)
    back[0] = 5
    assert back.is_cuda and there[0] == 5
    assert not torch.from_dlpack(here).is_cuda
    described = there[::2].__cuda_array_interface__
    assert described["data"][0] == there.data_ptr()
    assert (described["shape"], described["strides"], described["typestr"]) == ((2,), (8,), "<f4")
    with pytest.raises(AttributeError, match="non-CUDA"):
        _ = here.__cuda_array_interface__


def test_torchs_module_of_c_answers(gpu: VirtualGPU) -> None:
    assert torch._C._cuda_getCurrentRawStream(0) == torch.cuda.current_stream().cuda_stream
    made = torch._C._dynamo.guards._empty_strided_cuda((3, 2), (1, 3), torch.float16)
    assert made.is_cuda and made.stride() == (1, 3) and made.dtype == torch.float16


def test_a_launch_holds_the_memory_that_kernels_may_use(gpu: VirtualGPU) -> None:
    """A check copies that memory: what is gone must not be among it, and nothing may go meanwhile."""
    reductions = pytest.importorskip("torch.multiprocessing.reductions")

    kept, gone = (torch.zeros(1 << 22, device="cuda") for _ in range(2))
    first, second = kept.data_ptr(), gone.data_ptr()
    del gone
    held = gpu.torch.held()
    assert gpu.driver.memory.find(first) is not None and gpu.driver.memory.find(second) is None
    storage = reductions.StorageWeakRef(kept.untyped_storage())
    del kept
    assert not storage.expired()
    del held
    assert storage.expired()


@pytest.mark.parametrize(("kind", "block"), [("float8_e4m3fn", 16), ("float8_e8m0fnu", 32)])
def test_block_scaled_products_are_those_of_a_gpu(gpu: VirtualGPU, kind: str, block: int) -> None:
    """fp4 with scale factors in cuBLAS's order, which torch for CPUs refuses."""
    rng = np.random.default_rng(block)
    (m, n, k), numbers = (144, 40, 96), np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    operands, values = [], []
    for rows in (m, n):
        codes = rng.integers(0, 16, (rows, k))
        factors = torch.from_numpy(2.0 ** rng.integers(-3, 4, (rows, k // block))).to(getattr(torch, kind))
        packed = torch.from_numpy((codes[:, 0::2] | codes[:, 1::2] << 4).astype(np.uint8))
        swizzled = lw.SwizzledScales.of(factors.view(torch.uint8).numpy()).array
        scale = torch.from_numpy(np.asarray(swizzled)).view(factors.dtype)
        operands.append((packed.view(torch.float4_e2m1fn_x2).cuda(), scale.cuda()))
        signed = numbers[codes & 7] * np.where(codes > 7, -1, 1)
        values.append(signed * np.repeat(factors.double().numpy(), block, 1))
    (a, scale_a), (b, scale_b) = operands
    product = torch._scaled_mm(a, b.T, scale_a, scale_b, bias=None, out_dtype=torch.bfloat16)
    assert product.is_cuda and product.dtype == torch.bfloat16
    expected = torch.from_numpy(values[0] @ values[1].T).to(torch.bfloat16)
    assert torch.equal(product.cpu(), expected)


def test_a_written_backward_pass_sees_the_device(gpu: VirtualGPU) -> None:
    seen = []

    def backward(ctx: object, gradient: Any) -> Any:
        seen.append(gradient.is_cuda)
        return gradient + torch.ones(2, device=gradient.device)

    functions = {"forward": staticmethod(lambda ctx, x: 2 * x), "backward": staticmethod(backward)}
    Double: Any = type("Double", (torch.autograd.Function,), functions)

    here, there = torch.ones(2, requires_grad=True), torch.ones(2, device="cuda", requires_grad=True)
    for each in (here, there):
        Double.apply(each).sum().backward()
        assert each.grad.tolist() == [2, 2]
    assert seen == [False, True]


def test_functional_transforms_see_the_device(gpu: VirtualGPU) -> None:
    x, w = torch.randn(4, 8, device="cuda"), torch.randn(8, 3, device="cuda")

    def loss(x: Any, w: Any) -> Any:
        return ((x @ w - torch.ones(4, 3, device="cuda")) ** 2).sum()

    gradients, value = torch.func.grad_and_value(loss, argnums=(0, 1))(x, w)
    each = torch.func.vmap(lambda row: row @ w + torch.ones(3, device="cuda"))(x)
    assert [tensor.device.type for tensor in (*gradients, value, each)] == ["cuda"] * 4
    assert torch.allclose(gradients[0].cpu(), 2 * (x.cpu() @ w.cpu() - 1) @ w.cpu().T, atol=1e-4)
    with pytest.raises(RuntimeError, match="two devices"):
        torch.func.grad(lambda x: (x * torch.ones(8)).sum())(x)


def test_products_may_have_a_wider_type_than_their_operands(gpu: VirtualGPU) -> None:
    a, b = (torch.randn(16, 16, device="cuda").bfloat16() for _ in range(2))
    exact, sums = a.cpu().double() @ b.cpu().double(), torch.ones(16, 16, device="cuda")
    product = torch.mm(a, b, out_dtype=torch.float32)
    torch.addmm(sums, a, b, out_dtype=torch.float32, out=sums)
    assert (product.device.type, product.dtype) == ("cuda", torch.float32)
    assert torch.allclose(product.cpu().double(), exact, atol=1e-5)
    assert torch.allclose(sums.cpu().double(), exact + 1, atol=1e-5)
