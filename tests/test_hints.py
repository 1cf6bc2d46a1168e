"""First mistakes outside of kernels, as a new user makes them: each message says what would be right."""

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lanewise as lw
from lanewise.hints import Named, nearest

#: The library without its types, which would refuse the mistakes.
lib: Any = lw
MMA: Any = lw.instruction("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")
TILE = np.ones((16, 16), np.float16)
X = np.ones(32, np.float32)


@lw.kernel
def double(x: lw.Ptr[lw.f32]) -> None:
    i = lw.thread_idx.x
    x[i] = x[i] * 2


lib_kernel: Any = double


def checked() -> Any:
    return lw.check(double[1, 32], X)


#: A mistake, and the words with which its message says what to do.
MISTAKES: dict[str, tuple[Callable[[], object], type[Exception], str]] = {
    "load": (lambda: MMA.a.load(TILE), AttributeError, "pack(matrix) returns the registers of all lanes"),
    "operand of the instruction": (lambda: MMA.element(5, 2), AttributeError, ".d.element"),
    "upper case": (lambda: MMA.A, AttributeError, "did you mean a?"),
    "zero": (lambda: MMA.zero(), AttributeError, "did you mean zeros?"),
    "layout": (lambda: lib.layout((4, 8)), TypeError, "lanewise.Layout((4, 8), (1, 4)) makes a layout"),
    "draw": (lambda: lib.draw(MMA), TypeError, 'lanewise.draw.save(thing, "picture.svg")'),
    "atoms": (lambda: lib.atoms("SM80"), TypeError, 'lanewise.atoms.atoms("SM80")'),
    "ptx": (lambda: lib.ptx(double), TypeError, 'kernel.ptx(arch="sm_90")'),
    "gpu": (lambda: lib.gpu("H100"), TypeError, 'lanewise.virtual_gpu("H100")'),
    "swizzle": (lambda: lib.Swizzle("128B"), TypeError, "Swizzle(3, 4, 3)"),
    "strides as arguments": (lambda: lib.Layout(4, 8, 1, 4), TypeError, "Layout(((4, 8), (2, 2)), "),
    "a coordinate as a tuple": (lambda: MMA.a.holder((3, 9)), TypeError, "write holder(3, 9)"),
    "half of an element": (lambda: MMA.d.element(5), TypeError, "value is missing; an example: d.element("),
    "third operand": (lambda: lib.matmul(TILE, TILE, TILE), TypeError, "given by name: out=, bias=, "),
    "plan of sizes": (lambda: lib.plan(4096, 4096, 4096), TypeError, "plan(np.zeros((4096, 4096)"),
    "gemm without arch": (lambda: MMA.gemm(TILE, TILE), TypeError, "mma.gemm(a, b, arch="),
    "fidelity of what": (lambda: MMA.fidelity(), TypeError, 'fidelity("sm_90")'),
    "shape as numbers": (lambda: lib.instruction(16, 8, 16), TypeError, "instruction takes text by position"),
    "instructions by dtype": (lambda: lib.instructions(dtype="f16"), TypeError, "it takes arch, family, a"),
    "picture without a file": (lambda: lib.draw.save(MMA), TypeError, 'save(Layout((4, 8)), "layout.svg")'),
    "autotune by keyword": (lambda: lib.autotune(BLOCK=[1]), TypeError, 'autotune({"BLOCK": (64, 128)})'),
    "tiles outside of a kernel": (lambda: lib.gemm(TILE, TILE), TypeError, "takes tiled_mma, acc, a and b"),
    "pointer in parentheses": (lambda: lib.Ptr(lib.f32), TypeError, "an example: Ptr[f16, 16]"),
    "box first": (lambda: lib.tensor_map((64, 64), TILE), ValueError, "lw.tensor_map(array, box)"),
    "select": (lambda: lib.select, AttributeError, "where(condition, a, b)"),
    "a command": (lambda: lib.explain(MMA), AttributeError, "`lanewise explain` in a shell"),
    "mm": (lambda: lib.mm, AttributeError, "matmul multiplies arrays"),
    "of the layout algebra": (lambda: lib.composition, AttributeError, "lanewise.layout.composition"),
    "one finding": (lambda: checked().finding, AttributeError, "did you mean findings?"),
    "bank conflicts": (lambda: checked().bank_conflicts, AttributeError, "report.counters["),
    "a report as a table": (lambda: checked()["race"], TypeError, "report.findings is a list"),
    "a counter": (lambda: checked().counters["inst_execute"], KeyError, "did you mean "),
    "a counter by its words": (lambda: checked().counters["requests"], KeyError, "l1tex__t_requests_pipe"),
    "a counter of nothing": (lambda: checked().counters["zzz"], KeyError, "list(…) of this table has its"),
    "an attention mask": (lambda: lib.attention(X, X, X, mask=X), TypeError, "example: v = np.arange(128, "),
    "an array without an index": (lambda: lib.trace(double[1, 32], X).writer("x"), ValueError, 'as "x[0]"'),
    "@ of a sparse matrix": (lambda: TILE @ lib.sparsify(TILE), ValueError, "multiplied by lw.matmul(a, b)"),
    "@ of a quantized matrix": (lambda: lib.quantize(TILE) @ TILE, ValueError, "multiplied by lw.matmul("),
    "@ of blocks": (lambda: TILE @ lib.quantize(TILE, "mxfp8"), ValueError, "multiplied by lw.matmul(a, b)"),
    "a sparse matrix's T": (lambda: lib.sparsify(TILE).T, AttributeError, "lw.sparsify(b.T)"),
    "a sparse matrix as an array": (lambda: lib.sparsify(TILE).toarray(), AttributeError, "has dense()"),
    "items of a quantized matrix": (lambda: lib.quantize(TILE)[0], TypeError, "a quantized one dequantize()"),
    "blocks transposed": (lambda: lib.quantize(TILE, "mxfp8").T, AttributeError, "lw.quantize(w.T)"),
    "a quantized a": (lambda: lib.matmul(lib.quantize(TILE), TILE), ValueError, "is the b of lw.matmul"),
    "show a picture": (lambda: lib.draw.show(MMA), AttributeError, 'save(thing, "picture.svg") draws it'),
    "a name of a room": (lambda: lib.draw.sav, AttributeError, "did you mean save?"),
    "a step": (lambda: lib.trace(double[1, 32], X).step, AttributeError, "did you mean steps?"),
    "an element of a trace": (lambda: lib.trace(double[1, 32], X)["x[3]"], ValueError, "trace.origin("),
    "a late step": (lambda: lib.trace(double[1, 32], X).steps[999], IndexError, "there is no step 999"),
    "two pairs of brackets": (lambda: double[1][32](X), ValueError, "kernel[grid, block](…)"),
    "an array and an index": (lambda: lib.trace(double[1, 32], X).origin("x", 3), TypeError, "origin takes"),
    "tiles of a plan": (lambda: lib.plan(TILE, TILE).tiles, AttributeError, "it has bound, estimate, "),
    "which virtual GPU": (lambda: lib.virtual_gpu(), TypeError, 'virtual_gpu("H100")'),
    "cupy's name": (lambda: lib.load(double.ptx()).get_function("k"), AttributeError, 'module["name"]'),
    "threads of a copy": (lambda: lib.make_tiled_copy("SM75_U32x4_LDSM_N"), TypeError, "is missing"),
    "a method of layouts": (lambda: lib.Layout(4).compose(2), AttributeError, "lanewise.layout.composition("),
    "a tuple that is called": (lambda: MMA.archs(), TypeError, "leave out the parentheses"),
    "a list that is called": (lambda: checked().findings(), TypeError, "leave out the parentheses"),
    "a method that is not called": (lambda: lib_kernel.ptx.splitlines(), AttributeError, "ptx().splitlines"),
    "a counter as an attribute": (lambda: checked().counters.inst_executed, AttributeError, "executed.sum']"),
    "source": (lambda: lib_kernel.src, AttributeError, "kernel.function is the Python"),
    "an instruction among arrays": (lambda: lib.compare(MMA, TILE, TILE), ValueError, "lw.compare(a, b)"),
    "path first": (lambda: lib.draw.save("mma.svg", MMA), ValueError, "save(thing, 'mma.svg')"),
    "show": (lambda: MMA.show(), AttributeError, 'lanewise.draw.save(thing, "picture.svg")'),
    "a GPU that runs": (lambda: lib.virtual_gpu("A100").run(double), AttributeError, "with lw.virtual_gpu("),
    "zeros": (lambda: lib.zeros((4, 4)), AttributeError, "np.zeros makes an array"),
    "version": (lambda: lib.version, AttributeError, "__version__"),
    "Triton's and Numba's jit": (lambda: lib.jit(double), TypeError, "@lanewise.kernel marks a kernel"),
    "the thread's number": (lambda: lib.global_id, AttributeError, "block_idx.x * block_dim.x"),
    "an argument too many": (lambda: lib_kernel[1, 32](X, X), ValueError, "double takes 1 argument (x); 2 "),
    "an operand's item": (lambda: MMA.a[3, 9], TypeError, ".holder(row, col) says who"),
    "flops": (lambda: MMA.flops, AttributeError, "2 * mma.m * mma.n * mma.k"),
    "show a report": (lambda: checked().show(), AttributeError, 'save("file.html") writes a page'),
    "plot a layout": (lambda: lib.Layout(4).plot(), AttributeError, "lanewise.draw.save("),
    "JSON": (lambda: checked().to_json(), AttributeError, 'report.save("report.json")'),
    "a kernel to a GPU": (lambda: lib_kernel.to("cuda"), AttributeError, "runs where its arrays are"),
    "a kernel alone": (lambda: lib.check(double, X), ValueError, "lw.check(kernel[grid, block], a, b, …)"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_first_mistake_ends_in_its_mend(mistake: str) -> None:
    make, kind, mend = MISTAKES[mistake]
    with pytest.raises(kind) as caught:
        make()
    assert mend in str(caught.value)


def test_calls_that_fit_are_left_alone() -> None:
    def inside(*_: object) -> None:
        raise TypeError("inside() missing 1 required positional argument: 'x'")

    with pytest.raises(TypeError, match=r"^inside") as caught:
        lw.benchmark(inside)
    assert type(caught.value) is TypeError  # the function was entered: the error is its own


def test_a_trace_is_its_steps() -> None:
    trace = lw.trace(double[1, 32], X)
    assert str(trace[3]) == str(trace.steps[3]) and len(list(trace)) == len(trace)


def test_a_property_keeps_its_own_error() -> None:
    load = lw.instruction("ldmatrix.sync.aligned.m8n8.x4.shared.b16")
    with pytest.raises(AttributeError, match=r"ldmatrix.* has no operand b"):
        load.b  # noqa: B018 – the attribute is asked for, and raises
    assert not hasattr(MMA, "no_such_thing") and not hasattr(MMA, "__array_interface__")


def test_named_values_are_a_dictionary() -> None:
    counters = Named("counter", {"cycles": 5})
    assert pickle.loads(pickle.dumps(counters)) == counters == {"cycles": 5}
    assert counters.get("cycle") is None and "cycle" not in counters


def test_a_missing_file_names_the_one_beside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("v.cu").write_text("__global__ void v() {}")
    for name, mend in {
        "v.ptx": "did you mean v.cu?",
        "vv.cu": "did you mean v.cu?",
        "kernels/v.cu": "there is no folder kernels; the working folder is",
    }.items():
        with pytest.raises(lw.LanewiseError, match="no such file") as caught:
            lw.load(name) if name.endswith(".ptx") else lw.cuda(name)
        assert mend in str(caught.value)


def test_a_method_of_a_text_is_one() -> None:
    bound = double.ptx
    assert bound() == double.ptx() == lw.Kernel.ptx(double) and bound.__name__ == "ptx"
    assert bound.__doc__ == lw.Kernel.ptx.__doc__ and repr(bound).endswith("to be called: ptx()")
    assert pickle.loads(pickle.dumps(MMA.archs)) == MMA.archs and hash(MMA.archs) == hash(tuple(MMA.archs))


def test_case_and_underscores_do_not_count() -> None:
    assert nearest("ThreadIdx", ["thread_idx", "block_idx"]) == "thread_idx"
    assert nearest("quux", ["thread_idx", "block_idx"]) == ""
    assert nearest("version", ["sin", "load"]) == ""  # whose letters are all in it


KERNELS = {
    "store takes value": "x.store(1.0, 3)",
    "element has no parameter lane; it takes index": "mma.zeros().element(lane=0)",
    "lw.warp_reduce": "x[0] = lw.shared(lw.f32, 32).sum()",
    "did you mean zeros?": "mma.zero()",
    "load takes target, map, coordinates and barrier": "lw.tma.load(lw.shared(lw.f32, 32), x)",
    "take .x, .y or .z": "x[lw.thread_idx[0]] = 1.0",
    "write lane_id(…)": "x[lw.lane_id] = 1.0",
}


@pytest.mark.parametrize("mend", KERNELS)
def test_first_mistake_in_a_kernel_ends_in_its_mend(mend: str, tmp_path: Path) -> None:
    file = tmp_path / "kernels.py"
    file.write_text(f"@lw.kernel\ndef k(x: lw.Ptr[lw.f32]):\n    {KERNELS[mend]}\n")
    names = {"lw": lw, "mma": MMA}
    exec(compile(file.read_text(), file, "exec"), names)
    kernel = names["k"]
    assert isinstance(kernel, lw.Kernel)
    with pytest.raises(lw.LanewiseError, match=r"kernels\.py:3: ") as caught:
        kernel[1, 32](X)
    assert mend in str(caught.value)


def test_a_block_of_four_threads_says_how_many_to_launch() -> None:
    @lw.kernel
    def loads(x: lw.Ptr[lw.f32]) -> None:
        tile = lw.shared(lw.f16, (16, 16))
        lw.ldmatrix(tile.ptr(lw.lane_id() % 16, 0), num=4)

    with pytest.raises(lw.LanewiseError, match=r"block of 4 threads .* launch a multiple of 32"):
        loads[1, 4](X)


def test_first_mistakes_with_torch() -> None:
    torch = pytest.importorskip("torch")
    import lanewise.torch as products

    patch: Any = products.patch
    with pytest.raises(lw.LanewiseError, match=r"takes a model, an nn\.Module, not 'gpt2'"):
        patch("gpt2")
    matmul: Any = products.matmul
    half = torch.ones(16, 16).half()
    with pytest.raises(lw.LanewiseError, match=r"activation= is a name such as 'gelu'"):
        matmul(half, half, activation=torch.nn.functional.gelu)
    with pytest.raises(lw.LanewiseError, match=r"tensor\.to\(torch\.float32\) converts it"):
        double[1, 32](half)
    assert lib.format_of(torch.bfloat16) is lw.bf16
