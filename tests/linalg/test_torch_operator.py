"""`torch.ops.lanewise.matmul` on the CPU: torch's own checks, gradients, compilation, modules, sharding."""

# mypy: disable-error-code="no-untyped-call,index"
import os
import subprocess
import sys
import textwrap
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest

import lanewise as lw
from everything import only_with_everything, sampled

if find_spec("torch") is None:
    pytest.skip("torch is not installed", allow_module_level=True)
torch: Any
lt: Any


@pytest.fixture(scope="module", autouse=True)
def _import_torch() -> None:
    """Import torch where these tests run, not in every worker that collects them."""
    global lt, torch
    import torch

    import lanewise.torch as lt


def numbers(*shape: int, grad: bool = True, dtype: Any = None) -> Any:
    """Random numbers of a fixed seed by their shape."""
    made = torch.randn(
        shape, generator=torch.Generator().manual_seed(sum(shape)), dtype=dtype or torch.float32
    )
    return made.requires_grad_(grad)


CALLS = {
    "all that is fused": lambda: (
        numbers(5, 16), numbers(16, 8), numbers(8), "gelu", numbers(5, 8), 0.5, 2.0,
    ),
    "matrices": lambda: (numbers(5, 16), numbers(16, 8)),
    "a batch": lambda: (numbers(2, 5, 16), numbers(2, 16, 8)),
    "one matrix for a batch": lambda: (numbers(2, 3, 5, 16), numbers(16, 8), numbers(8), "silu"),
    "bfloat16": lambda: (
        numbers(5, 16, grad=False, dtype=torch.bfloat16), numbers(16, 8, grad=False, dtype=torch.bfloat16),
    ),
}  # fmt: skip


@sampled(5)
@pytest.mark.parametrize("call", CALLS)
def test_opcheck_passes(call: str) -> None:
    found = torch.library.opcheck(torch.ops.lanewise.matmul.default, CALLS[call]())
    assert set(found.values()) == {"SUCCESS"}


def test_gradients_are_those_of_finite_differences() -> None:
    a, b, bias, residual = (
        numbers(*shape, dtype=torch.float64) for shape in ((2, 3, 4), (4, 5), (5,), (2, 3, 5))
    )

    def fused(a: Any, b: Any, bias: Any, residual: Any) -> Any:
        return lt.matmul(a, b, bias=bias, activation="relu", residual=residual, alpha=0.5, beta=2.0)

    assert torch.autograd.gradcheck(fused, (a, b, bias, residual))
    for shapes in (((3,), (3, 4)), ((2, 3), (3,)), ((2, 1, 2, 3), (4, 3, 2))):
        assert torch.autograd.gradcheck(
            lt.matmul, tuple(numbers(*each, dtype=torch.float64) for each in shapes)
        )


@pytest.mark.parametrize("activation", ["relu", "gelu", "gelu_tanh", "silu", "sigmoid"])
def test_activations_have_the_gradients_of_torch(activation: str) -> None:
    functional = torch.nn.functional
    reference = {
        "relu": functional.relu,
        "gelu": functional.gelu,
        "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"),
        "silu": functional.silu,
        "sigmoid": torch.sigmoid,
    }[activation]
    a, b, bias = numbers(4, 16), numbers(16, 8), numbers(8)
    own = torch.autograd.grad(lt.matmul(a, b, bias=bias, activation=activation).sum(), (a, b, bias))
    theirs = torch.autograd.grad(reference(a @ b + bias).sum(), (a, b, bias))
    for one, other in zip(own, theirs, strict=True):
        torch.testing.assert_close(one, other, atol=2e-5, rtol=1e-4)


def test_the_operator_has_the_bits_of_the_call() -> None:
    a, b = numbers(33, 100, grad=False).half(), numbers(100, 20, grad=False).half()
    assert torch.equal(lt.matmul(a, b), lw.matmul(a, b))
    assert lt.matmul(a, b, out_dtype=torch.float32).dtype == torch.float32


def test_compiled_graphs_have_no_breaks() -> None:
    a, b, bias = numbers(4, 16), numbers(16, 8), numbers(8)

    def model(a: Any, b: Any) -> Any:
        return (lt.matmul(a, b, bias=bias, activation="gelu") * 2).sum()

    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(a, b), model(a, b))
    own, theirs = (torch.autograd.grad(each(a, b), (a, b)) for each in (compiled, model))
    for one, other in zip(own, theirs, strict=True):
        torch.testing.assert_close(one, other)


def test_autocast_lowers_the_factors() -> None:
    a, b = numbers(4, 16), numbers(16, 8)
    with torch.autocast("cpu", torch.bfloat16):
        found = lt.matmul(a, b, bias=numbers(8))
    assert found.dtype == torch.bfloat16
    torch.autograd.grad(found.sum().float(), (a, b))


@pytest.mark.parametrize(
    ("shapes", "axes"),
    [
        (((7, 5, 16), (16, 8)), (0, None)),
        (((5, 7, 16), (16, 8)), (1, None)),
        (((5, 16), (16, 8, 7)), (None, 2)),
        (((7, 16), (7, 16, 8)), (0, 0)),
        (((7, 2, 5, 16), (16, 7)), (0, 1)),
    ],
)
def test_vmap(shapes: Any, axes: Any) -> None:
    a, b = (numbers(*shape, grad=False) for shape in shapes)
    found = torch.vmap(lt.matmul, in_dims=axes)(a, b)
    torch.testing.assert_close(found, torch.vmap(torch.matmul, in_dims=axes)(a, b))


def test_tangents_of_forward_mode_are_those_of_torch() -> None:
    """`torch.library.register_autograd` alone drops tangents without a word."""
    functional, jvp = torch.nn.functional, torch.func.jvp
    values = tuple(numbers(*shape, grad=False) for shape in ((3, 4), (4, 2), (2,), (3, 2)))
    tangents = tuple(value + 1 for value in values)

    def own(a: Any, b: Any, bias: Any, residual: Any) -> Any:
        return lt.matmul(a, b, bias=bias, activation="gelu", residual=residual, alpha=0.5, beta=2.0)

    def of_torch(a: Any, b: Any, bias: Any, residual: Any) -> Any:
        return functional.gelu(0.5 * (a @ b) + bias) + 2 * residual

    def all_of(function: Any) -> list[Any]:
        every = (0, 1, 2, 3)
        twice = jvp(lambda *given: jvp(function, given, tangents)[1], values, tangents)

        def summed(*given: Any) -> Any:
            return function(*given).sin().sum()

        with torch.autograd.forward_ad.dual_level():
            duals = map(torch.autograd.forward_ad.make_dual, values, tangents)
            dual = torch.autograd.forward_ad.unpack_dual(function(*duals)).tangent
        hessians = torch.func.hessian(summed, every)(*values)
        return [
            *jvp(function, values, tangents), *twice, dual, *torch.func.jacfwd(function, every)(*values),
            *(part for row in hessians for part in row),
        ]  # fmt: skip

    for one, other in zip(all_of(own), all_of(of_torch), strict=True):
        torch.testing.assert_close(one, other, atol=2e-4, rtol=1e-3)
    layer = lt.Linear(4, 2)
    found = jvp(layer, values[:1], tangents[:1])
    torch.testing.assert_close(
        found, jvp(lambda x: x @ layer.weight.T + layer.bias, values[:1], tangents[:1])
    )


@pytest.mark.parametrize(
    "shapes",
    [((3, 4), (4, 2), (3, 1)), ((4,), (4, 2), (2,)), ((3, 4), (4,), (3, 1)), ((4,), (4,), (1,)),
     ((2, 1, 3, 4), (5, 4, 2), (1, 2))],
)  # fmt: skip
def test_derivatives_of_all_shapes(shapes: Any) -> None:
    """Forward and backward, one by one and in batches, with vectors, and a bias of rows or columns."""
    given = tuple(numbers(*shape, dtype=torch.float64) for shape in shapes)

    def fused(a: Any, b: Any, bias: Any) -> Any:
        return lt.matmul(a, b, bias=bias, activation="relu")

    batched = dict.fromkeys(("check_batched_grad", "check_batched_forward_grad"), True)
    assert torch.autograd.gradcheck(fused, given, check_forward_ad=True, **batched)


def test_derivatives_that_there_are_not_are_refused() -> None:
    q = numbers(3, 64, grad=False, dtype=torch.float16)
    for whole in (False, True):

        def attend(q: Any, whole: bool = whole) -> Any:
            return lt.attention(q, q, q, return_lse=whole)

        with pytest.raises(lw.LanewiseError, match="has no gradient and no forward-mode tangent"):
            torch.func.jvp(attend, (q,), (q,))
    with pytest.raises(lw.LanewiseError, match="has no gradient"):
        torch.func.grad(lambda q: lt.attention(q, q, q).sum())(q)
    a, b, scale = q.to(torch.float8_e4m3fn), q.T.to(torch.float8_e4m3fn), torch.ones(3, 1)
    with pytest.raises(lw.LanewiseError, match="products with scales have no gradients and no forward-mode"):
        torch.func.jvp(lambda scale: lt.matmul(a, b, scale_a=scale), (scale,), (scale,))


def test_gradients_under_torch_func() -> None:
    """Levels nest; a level that records none leaves the others alone."""
    b, bias, batch = numbers(4, 2, grad=False), numbers(2, grad=False), numbers(5, 3, 4, grad=False)

    def both(product: Any) -> list[Any]:
        def loss(x: Any) -> Any:
            with torch.no_grad():
                constant = product(x)
            return (constant * product(x)).sum()

        grad = torch.func.grad
        return [
            torch.vmap(grad(loss))(batch), grad(lambda x: grad(loss)(x).sum())(batch[0]),
            torch.func.jacrev(product)(batch[0]), grad(lambda x: torch.vmap(product)(x).sum())(batch),
        ]  # fmt: skip

    own = both(lambda x: lt.matmul(x, b, bias=bias, activation="sigmoid"))
    for one, other in zip(own, both(lambda x: torch.sigmoid(x @ b + bias)), strict=True):
        torch.testing.assert_close(one, other)


def test_vmap_over_a_bias_and_scales() -> None:
    a, b = numbers(3, 4, grad=False), numbers(4, 2, grad=False)

    def fused(bias: Any) -> Any:
        return lt.matmul(a, b, bias=bias, activation="gelu")

    for biases in (numbers(2, 5, grad=False), numbers(1, 2, 5, grad=False), numbers(3, 1, 5, grad=False)):
        found = torch.vmap(fused, in_dims=-1)(biases)
        assert torch.equal(found, torch.stack([fused(biases[..., i].contiguous()) for i in range(5)]))
        assert torch.vmap(fused, in_dims=-1)(biases[..., :0]).shape == (0, 3, 2)
    torch.func.jacfwd(fused)(numbers(2, grad=False))
    a, b, scales = a.to(torch.int8), b.to(torch.int8), numbers(5, 3, 1, grad=False)

    def scaled(scale: Any) -> Any:
        return lt.matmul(a, b, scale_a=scale, out_dtype=torch.float32)

    assert torch.equal(torch.vmap(scaled)(scales), torch.stack([scaled(scale) for scale in scales]))


def test_a_call_that_is_refused_alone_is_refused_under_vmap() -> None:
    """Of vectors of numbers the batch would be taken for an axis of the product."""
    for axes, shapes in (((0, None), ((3,), (1, 2))), ((0, 0), ((3,), (3, 4, 2))), ((0, None), ((3, 1), ()))):
        with pytest.raises(lw.LanewiseError, match="has no axes"):
            torch.vmap(lt.matmul, in_dims=axes)(*(numbers(*shape, grad=False) for shape in shapes))
    a, b, residual = (numbers(*shape, grad=False) for shape in ((5, 3, 4), (4, 2), (5, 2)))
    with pytest.raises(lw.LanewiseError, match=r"residual has shape \(2,\); the result has \(3, 2\)"):
        torch.vmap(lambda a, residual: lt.matmul(a, b, residual=residual))(a, residual)
    rows = numbers(3, 64, grad=False, dtype=torch.float16)
    with pytest.raises(lw.LanewiseError, match=r"q has shape \(64,\)"):
        torch.vmap(lt.attention)(rows, rows, rows)


@pytest.mark.parametrize("shape", [(2, 2, 2, 3, 64), (2, 2, 3, 64), (2, 3, 64)])
def test_vmap_of_attention(shape: Any) -> None:
    q = numbers(*shape, grad=False, dtype=torch.float16)

    def attend(q: Any, k: Any) -> Any:
        return lt.attention(q, k, k, return_lse=True)

    for one, other in zip(
        torch.vmap(attend, in_dims=(0, None))(q, q[1]), zip(*(attend(each, q[1]) for each in q), strict=True),
        strict=True,
    ):  # fmt: skip
        assert torch.equal(one, torch.stack(other))


def _refused_products() -> list[Any]:
    """Calls of the operator, one wrong in each rule, and some that are right."""

    def ones(*shape: int, dtype: Any = torch.float16) -> Any:
        return torch.ones(shape, dtype=dtype)

    a, b, int8, small = ones(3, 4), ones(4, 2), torch.int8, torch.float8_e4m3fn
    return [
        (a, b, ones(2), "relu", ones(3, 2)), (a, b.T), (a, ones(5, 2)), (ones(), b), (a, b.float()),
        (a.bool(), b.bool()), (ones(2, 3, 4), ones(3, 4, 2)), (a, b, ones(3)), (a, b, ones(2, 2)[:, 0]),
        (a, b, ones(2, dtype=int8)), (a, b, None, "swoosh"), (a, b, None, None, ones(2)),
        (a, b, None, None, ones(3, 2, dtype=torch.float64)), (a, b, None, None, None, 1.0, 2.0),
        (a, b, None, None, None, 1.0, 1.0, ones(3, 1, dtype=torch.float32)),
        (a, b, None, None, None, 1.0, 1.0, None, None, torch.int32),
        (a, b, None, None, None, 1.0, 1.0, None, None, None, "tf32"),
        (a, b, None, None, None, 1.0, 1.0, None, None, None, None, False, "sm_35"),
        (a.to(int8), b.to(int8), ones(2)), (a.to(int8), b.to(int8)), (a.double(), b.double(), None, "gelu"),
        (a.to(small), b.to(small), None, None, None, 1.0, 1.0, ones(3, 2, dtype=torch.float32)),
        (a.to(small), b.to(small), None, None, None, 1.0, 1.0, ones(3, 1, dtype=torch.float32)),
    ]  # fmt: skip


def _refused_attentions() -> list[Any]:
    """Calls of attention, one wrong in each rule, and one that is right."""
    q = torch.ones(2, 4, 3, 64, dtype=torch.float16)
    return [
        (q, q, q), (q.float(),) * 3, (q, q.bfloat16(), q), (q[..., :32],) * 3, (q, q[0], q[0]),
        (q, q, q[:, :, :2]), (q, q[:, :3], q[:, :3]), (q, q[:1], q[:1]), (q[0, 0, 0],) * 3, (q[None],) * 3,
        (q, q, q, False, -1.0), (q, q, q, False, float("nan")),
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["matmul", "attention", "attention_lse"])
def test_a_trace_refuses_what_a_call_refuses(name: str) -> None:
    """In the same words: shapes, types and epilogues are known before there are numbers."""
    from torch._subclasses import FakeTensorMode

    operator = getattr(torch.ops.lanewise, name)

    def said(given: Any, mode: Any = None) -> Any:
        def moved(value: Any) -> Any:
            if not isinstance(value, torch.Tensor) or mode is None:
                return value
            return mode(value)

        try:
            results = operator(*map(moved, given))
        except lw.LanewiseError as error:
            return str(error)
        results = results if isinstance(results, tuple) else (results,)
        return [(result.shape, result.dtype, result.stride()) for result in results]

    def meta(tensor: Any) -> Any:
        return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")

    calls = _refused_products() if name == "matmul" else _refused_attentions()
    answers = [said(given) for given in calls]
    assert sum(isinstance(answer, str) for answer in answers) == len(calls) - (3 if name == "matmul" else 1)
    for given, answer in zip(calls, answers, strict=True):
        with FakeTensorMode() as fakes:
            assert said(given, fakes.from_tensor) == answer
        if "sm_35" not in given:
            assert said(given, meta) == answer


def test_traces_with_symbols_look_at_no_size_twice() -> None:
    """A rule that is looked up adds no guard: one graph serves all sizes, also those that data decides."""
    from torch._dynamo.testing import CompileCounter

    counter = CompileCounter()
    b, bias = numbers(16, 8, grad=False), numbers(8, grad=False)

    def model(a: Any) -> Any:
        return lt.matmul(a, b, bias=bias, activation="gelu")

    compiled = torch.compile(model, fullgraph=True, dynamic=True, backend=counter)
    for rows in (5, 7, 9):
        a = numbers(2, rows, 16, grad=False)
        assert torch.equal(compiled(a), model(a))
    assert counter.frame_count == 1
    with pytest.raises(Exception, match="they must agree"):
        torch.compile(model, fullgraph=True, dynamic=True, backend="eager")(numbers(2, 5, 17, grad=False))

    plain = torch.compile(lambda a: lw.matmul(a, b), fullgraph=True, dynamic=True, backend="eager")
    for rows in (5, 7):
        a = numbers(2, rows, 16, grad=False)
        assert torch.equal(plain(a), lw.matmul(a, b))

    def chosen(a: Any) -> Any:
        return lt.matmul(a[a[:, 0].nonzero()[:, 0]], b)

    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        a = torch.ones(6, 16)
        assert torch.equal(torch.compile(chosen, fullgraph=True, backend="aot_eager")(a), chosen(a))


def test_lanewises_own_functions_in_graphs() -> None:
    """`lw.matmul` and `lw.attention` are operators there; what no operator takes ends the graph."""
    a, b = numbers(3, 4, grad=False, dtype=torch.float16), numbers(4, 2, grad=False, dtype=torch.float16)
    q = numbers(3, 64, grad=False, dtype=torch.float16)
    weight = lw.quantize(numbers(64, 64, grad=False, dtype=torch.float16))

    def fused(a: Any, b: Any, q: Any) -> Any:
        return lw.matmul(a=a, b=b, activation="relu", bias=None) * 2, lw.attention(q, q, q) * 2

    compiled = torch.compile(fused, fullgraph=True, backend="eager")
    assert all(map(torch.equal, compiled(a, b, q), fused(a, b, q)))
    with torch.autocast("cpu", torch.bfloat16):
        assert compiled(a, b, q)[0].dtype == torch.float16

    def written(a: Any, b: Any) -> Any:
        return lw.matmul(a + 0, b, out=torch.empty(3, 2, dtype=torch.float16)) * 2

    def quantized(x: Any, _: Any) -> Any:
        return lw.matmul(x + 0, weight) * 2

    for function, given, said in (
        (written, (a, b), r"is lanewise\.torch\.matmul, which has no out=: leave it out"),
        (quantized, (q, q), "takes torch's tensors, not QuantizedMatrix: let the graph end there"),
    ):
        assert torch.equal(torch.compile(function, backend="eager")(*given), function(*given))
        torch._dynamo.reset()
        with pytest.raises(torch._dynamo.exc.Unsupported, match=said):
            torch.compile(function, fullgraph=True, backend="eager")(*given)


@only_with_everything
def test_graphs_need_no_import_of_lanewise_torch() -> None:
    code = """
        import torch, lanewise as lw
        a, b = torch.randn(3, 4), torch.randn(4, 2)
        found = torch.compile(lambda a, b: lw.matmul(a, b) * 2, fullgraph=True, backend="eager")(a, b)
        assert torch.equal(found, lw.matmul(a, b) * 2)
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True)


def test_what_torch_follows_is_refused_by_functions_that_it_does_not_see() -> None:
    """Their results had no tangents, or were memory that nobody had written."""
    from torch.fx.experimental.proxy_tensor import make_fx

    x, w, q = numbers(4, 5, grad=False), numbers(5, 3, grad=False), numbers(3, 64, grad=False).half()

    def groups(a: Any) -> Any:
        return lw.grouped_matmul(a, w[None], [4])

    functions = {
        "matmul": (lambda a: lw.matmul(a, w), lambda a: lt.matmul(a, w), x),
        "matmul ": (lambda a: lw.matmul(x, w, residual=a), lambda a: lt.matmul(x, w, residual=a), x @ w),
        "attention": (lambda a: lw.attention(a, q, q), lambda a: lt.attention(a, q, q), q),
        "grouped_matmul": (groups, None, x),
    }
    for name, (unseen, seen, given) in functions.items():
        unseen(given)
        followed = {
            "inside torch.func": torch.func.functionalize(unseen),
            "in a trace": make_fx(unseen),
            "in a trace ": lambda a, unseen=unseen: torch.jit.trace(unseen, (a,)),
            "inside torch.func ": lambda a, unseen=unseen: torch.vmap(unseen)(a[None]),
        }
        for where, call in followed.items():
            with pytest.raises(lw.LanewiseError, match=f"{where.strip()}.*lw.{name.strip()} computes"):
                call(given)
        with torch.autograd.forward_ad.dual_level():
            unseen(given)  # it has no tangent
            dual = torch.autograd.forward_ad.make_dual(given, given)
            with pytest.raises(lw.LanewiseError, match="a tangent of forward mode"):
                unseen(dual)
        if seen is not None:
            assert torch.equal(torch.func.functionalize(seen)(given), seen(given))
            assert torch.equal(make_fx(seen)(given)(given), seen(given))
            assert torch.equal(torch.jit.trace(seen, (given,), check_trace=False)(given), seen(given))


def test_compiled_autograd_takes_products() -> None:
    a, b = numbers(4, 5), numbers(5, 3, grad=False)
    with torch._dynamo.compiled_autograd._enable(torch.compile(backend="eager")):
        lt.matmul(a, b, activation="gelu").sum().backward()
    found, a.grad = a.grad, None
    torch.nn.functional.gelu(a @ b).sum().backward()
    assert found is not None
    torch.testing.assert_close(found, a.grad, atol=1e-4, rtol=1e-4)


def test_factors_and_names_are_those_of_lw_matmul() -> None:
    x, w = numbers(4, 5, grad=False), numbers(5, 3, grad=False)
    assert torch.equal(lt.matmul(x, w, alpha=np.float32(2), beta=None), lw.matmul(x, w, alpha=2.0))
    small = x[:, :4].repeat(1, 4).to(torch.float8_e4m3fn)
    given: Any = {"scale_a": np.float32(2), "scale_b": 3}
    assert torch.equal(lt.matmul(small, small.T, **given), lw.matmul(small, small.T, **given))
    for wrong, said in (
        ({"alpha": True}, "alpha must be a number, not True"), ({"alpha": "x"}, "alpha must be a number"),
        ({"scale_a": 2.0}, "scale_a is for float8 and int8"), ({"beta": torch.ones(())}, "not a tensor"),
    ):  # fmt: skip
        with pytest.raises(lw.LanewiseError, match=said):
            lt.matmul(x, w, **wrong)
    for out_dtype in ("f16", "bfloat16", torch.float32):

        def typed(a: Any, out_dtype: Any = out_dtype) -> Any:
            return lw.matmul(a, a.T, out_dtype=out_dtype)

        half = x.half()
        assert torch.equal(torch.compile(typed, fullgraph=True, backend="eager")(half), typed(half))
    with pytest.raises(lw.LanewiseError, match="takes torch's tensors, and q is ndarray"):
        lt.attention(np.zeros((3, 64)), x, x)


def test_layers_that_cannot_be_are_refused_at_once() -> None:
    with pytest.raises(lw.LanewiseError, match="precision='x'"):
        lt.Linear(8, 4, precision="x")
    with pytest.raises(lw.LanewiseError, match="precision='x'"):
        lt.patch(torch.nn.Linear(8, 4), precision="x")
    half = lt.patch(torch.nn.Linear(8, 4).half(), precision="tf32")  # which is for layers of float32
    assert half(torch.ones(2, 8).half()).dtype == torch.float16
    with pytest.raises(lw.LanewiseError, match=r"unpatch takes a model, an nn\.Module, not 3"):
        lt.unpatch(3)
    model = lt.patch(torch.nn.Sequential(torch.nn.Linear(8, 4)))
    torch.nn.utils.parametrize.register_parametrization(model[0], "weight", torch.nn.Identity())
    with pytest.warns(UserWarning, match="0 got a parametrization after patch, and stays"):
        lt.unpatch(model)


def test_tensors_that_are_no_memory_are_refused() -> None:
    dense, b = numbers(4, 4, grad=False), numbers(4, 2)
    with pytest.raises(lw.LanewiseError, match=r"a has layout torch\.sparse_coo.*pass a\.to_dense\(\)"):
        lt.matmul(dense.to_sparse(), b)
    with pytest.raises(lw.LanewiseError, match="a is a nested tensor"):
        lt.matmul(torch.nested.nested_tensor([dense, dense]), b)
    with pytest.raises(lw.LanewiseError, match="beta= scales a matrix that is added"):
        lt.matmul(dense, b, beta=2.0)


def test_patched_models_multiply_by_lanewise() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))
    x = numbers(3, 16)
    before, names = model(x), list(model.state_dict())
    assert lt.patch(model) is model
    assert type(model[0]) is lt.Linear and list(model.state_dict()) == names
    torch.testing.assert_close(model(x), before)
    assert "LanewiseMatmul" in str(model(x).grad_fn) or "lanewise" in str(model(x).grad_fn).lower()
    assert str(model).count("lanewise.torch.Linear(") == 2
    lt.unpatch(model)
    assert type(model[0]) is torch.nn.Linear and "lanewise" not in str(model)
    own = lt.Linear(16, 8, activation="silu", batch_invariant=True)
    assert str(own).endswith("bias=True, activation='silu', batch_invariant=True)")
    torch.testing.assert_close(
        own(x), torch.nn.functional.silu(x @ own.weight.T + own.bias), atol=1e-5, rtol=1e-4
    )


def test_a_model_without_products_is_told() -> None:
    array: Any = np.ones((2, 2), np.float16)
    with pytest.warns(UserWarning, match=r"the model has no torch\.nn\.Linear, and stays as it is"):
        lt.patch(torch.nn.Conv2d(3, 3, 3))
    with pytest.raises(lw.LanewiseError, match=r"and a is ndarray; lw\.matmul takes arrays"):
        lt.matmul(array, numbers(2, 2))


@lw.kernel
def tensor_in_a_branch(x: lw.Ptr[lw.f32], n: lw.i32) -> None:
    t, table = torch.zeros(4), torch.arange(4.0)
    for i in lw.range(n):
        x[i] = float(table[2])
    if n > 2:
        t[0] = 3
    x[0] = float(t[0])


def test_tensors_keep_their_elements_under_control_flow_of_a_kernel() -> None:
    with pytest.raises(lw.KernelError, match="t is a tensor of torch, and its elements change in"):
        tensor_in_a_branch[1, 1](np.zeros(4, np.float32), 1)


def test_calls_without_gradients_say_where_they_are() -> None:
    with pytest.raises(lw.LanewiseError, match=r"lanewise\.torch\.matmul, which does"):
        lw.matmul(numbers(2, 3), numbers(3, 2))
    with pytest.raises(lw.LanewiseError, match="stands for other tensors"):
        with torch._subclasses.FakeTensorMode():
            fake = torch.empty(2, 2)
        lw.matmul(fake, fake)


def test_tensors_of_several_devices_are_refused() -> None:
    """One on meta has no numbers: torch asks for the shape of a result alone then."""
    a, b, bias = numbers(5, 16, grad=False), numbers(16, 8, grad=False), numbers(8, grad=False)
    for tensors in ((a, b.to("meta")), (a.to("meta"), b), (a, b, bias.to("meta"))):
        with pytest.raises(lw.LanewiseError, match=r"is on .* and .* on .*: move them to one device"):
            torch.ops.lanewise.matmul(*tensors)
    q = numbers(1, 2, 5, 64, grad=False, dtype=torch.float16)
    with pytest.raises(lw.LanewiseError, match="q is on cpu and k on meta"):
        lt.attention(q, q.to("meta"), q)
    assert torch.ops.lanewise.matmul(a.to("meta"), b.to("meta")).shape == (5, 8)


@pytest.mark.parametrize("name", ["matmul", "grouped", "int4", "attention"])
def test_a_backward_pass_that_saved_out_is_refused(name: str) -> None:
    x = numbers(4, 64, grad=False, dtype=torch.float16)
    heads = x.reshape(1, 1, 4, 64)
    out = torch.ones((1, 1, 4, 64) if name == "attention" else (4, 64), dtype=torch.float16)
    weight = torch.ones_like(out).requires_grad_()
    loss = (weight * out).sum()
    square = numbers(64, 64, grad=False, dtype=torch.float16)
    calls = {
        "matmul": lambda: lw.matmul(x, square, out=out),
        "grouped": lambda: lw.grouped_matmul(x, square[None], [4], out=out),
        "int4": lambda: lw.matmul(x, lw.quantize(square), out=out),
        "attention": lambda: lw.attention(heads, heads, heads, out=out),
    }
    calls[name]()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_numbers_are_no_tensors_that_could_have_gradients() -> None:
    a, b = numbers(5, 16), numbers(16, 8)
    learned = torch.nn.Parameter(torch.tensor(2.0))
    for given in ({"alpha": learned}, {"beta": learned, "residual": numbers(5, 8)}):
        with pytest.raises(lw.LanewiseError, match="must be a number, not a tensor"):
            lt.matmul(a, b, **given)
    half = lt.matmul(a, b, alpha=0.5, out_dtype="bf16")
    assert torch.equal(half, lt.matmul(a, b, alpha=0.5, out_dtype=torch.bfloat16))


def test_classes_that_add_nothing_to_a_tensor_are_taken() -> None:
    named = type("Named", (torch.Tensor,), {})
    a, b = numbers(5, 16, grad=False), numbers(16, 8, grad=False)
    assert (lw.matmul(a.as_subclass(named), b) == lw.matmul(a, b)).all()


def test_gradients_of_two_vectors_of_nothing_and_of_gradients() -> None:
    a, b, bias = (numbers(*shape, dtype=torch.float64) for shape in ((6,), (6,), (1,)))
    assert torch.autograd.gradcheck(lambda a, b, bias: lt.matmul(a, b, bias=bias), (a, b, bias))
    layer = lt.Linear(8, 0)
    layer(torch.ones(3, 8)).sum().backward()
    assert layer.weight.grad.shape == (0, 8) and layer.bias.grad.shape == (0,)
    x = numbers(3, 4)
    (gradient,) = torch.autograd.grad(
        lt.matmul(x, numbers(4, 2), activation="silu").sum(), x, create_graph=True
    )
    (second,) = torch.autograd.grad(gradient.sum(), x)
    (of_torch,) = torch.autograd.grad(torch.nn.functional.silu(x @ numbers(4, 2)).sum(), x, create_graph=True)
    assert torch.allclose(second, torch.autograd.grad(of_torch.sum(), x)[0], atol=1e-5)


def test_a_mapped_residual_alone() -> None:
    a, b, residuals = numbers(5, 16, grad=False), numbers(16, 8, grad=False), numbers(3, 5, 8, grad=False)
    found = torch.vmap(lambda residual: lt.matmul(a, b, residual=residual))(residuals)
    assert (found == torch.stack([lt.matmul(a, b, residual=residual) for residual in residuals])).all()


def test_precision_is_of_f32_under_autocast_too() -> None:
    layer, x = lt.Linear(16, 8, precision="tf32"), numbers(5, 16, grad=False)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert layer(x).dtype == torch.bfloat16
        with pytest.raises(lw.LanewiseError, match="precision= is for"):
            lt.matmul(x.bfloat16(), numbers(16, 8, grad=False).bfloat16(), precision="tf32")


def test_patch_changes_its_own_layers_alone_and_those_again() -> None:
    own = lt.Linear(16, 8, precision="tf32")
    model = lt.patch(torch.nn.Sequential(torch.nn.Linear(16, 16), own))
    lt.patch(model, precision="tf32", batch_invariant=True)
    assert model[0].precision == "tf32" and model[0].batch_invariant and not own.batch_invariant
    lt.unpatch(model)
    assert type(model[0]) is torch.nn.Linear and type(own) is lt.Linear and own.precision == "tf32"
    assert not {"precision", "batch_invariant", "_is_patched"} & model[0].__dict__.keys()


def test_lanewise_is_imported_without_torch() -> None:
    code = """
        import sys
        sys.modules["torch"] = None
        import numpy, lanewise
        lanewise.matmul(numpy.ones((2, 2), "float16"), numpy.ones((2, 2), "float16"))
        try:
            import lanewise.torch
        except ImportError as error:
            print(error)
    """
    said = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=True
    )
    assert "pip install torch" in said.stdout


SHARDED = """
import os, sys, torch, torch.distributed as dist
from torch.distributed.tensor import Partial, Replicate, Shard, distribute_tensor, init_device_mesh
import lanewise.torch as lt
child = os.fork()  # importing all this takes seconds: it is done once for both processes
rank = int(child == 0)
dist.init_process_group("gloo", init_method="file://" + sys.argv[1], rank=rank, world_size=2)
mesh = init_device_mesh("cpu", (2,))
torch.manual_seed(0)
a, b, bias = torch.randn(6, 8), torch.randn(8, 4), torch.randn(4)
whole = Replicate()
ways = (whole, Shard(1), Shard(1)), (Shard(1), Shard(0), Partial()), (Shard(0), whole, Shard(0))
for of_a, of_b, out in ways:
    found = lt.matmul(distribute_tensor(a, mesh, [of_a]), distribute_tensor(b, mesh, [of_b]))
    assert found.placements == (out,), found.placements
    torch.testing.assert_close(found.full_tensor(), a @ b)
parts = [distribute_tensor(each, mesh, [how]) for each, how in ((a, whole), (b, Shard(1)), (bias, Shard(0)))]
found = lt.matmul(parts[0], parts[1], bias=parts[2], activation="relu")
assert found.placements == (Shard(1),)
torch.testing.assert_close(found.full_tensor(), torch.relu(a @ b + bias))
# A bias is added once, although each process has a part of K.
found = lt.matmul(distribute_tensor(a, mesh, [Shard(1)]), distribute_tensor(b, mesh, [Shard(0)]),
                  bias=distribute_tensor(bias, mesh, [whole]))
torch.testing.assert_close(found.full_tensor(), a @ b + bias)
dist.destroy_process_group()
if child:
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@only_with_everything
@pytest.mark.slow
def test_products_of_sharded_tensors(tmp_path: Any) -> None:
    if not (torch.distributed.is_available() and hasattr(os, "fork")):
        pytest.skip("torch is built without distributed tensors, or processes cannot be forked here")
    command = [sys.executable, "-c", SHARDED, str(tmp_path / "store")]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 0, done.stderr


def test_the_operator_computes_as_a_b200() -> None:
    """`arch` is that of the product and of its gradients; block scales are tensors like others."""
    a, b = numbers(70, 96, dtype=torch.float16), numbers(96, 80, dtype=torch.float16)
    product = lt.matmul(a, b, arch="sm_100a")
    with torch.no_grad():
        assert torch.equal(product, lw.matmul(a.detach(), b.detach(), arch="sm_100a"))
        wanted = lw.matmul(torch.ones(70, 80, dtype=torch.float16), b.detach().T, arch="sm_100a")
    product.sum().backward()
    assert torch.equal(a.grad, wanted)
    left, right = lw.quantize(a, "mxfp8", axis=1), lw.quantize(b, "mxfp8")
    scaled = lt.matmul(left.values, right.values, scale_a=left.scales, scale_b=right.scales, arch="sm_100a")
    assert scaled.dtype == torch.bfloat16
    assert torch.equal(scaled, lw.matmul(left, right, arch="sm_100a"))


def test_pairs_of_float4_are_counted_in_traces() -> None:
    pairs = torch.zeros(3, 16, dtype=torch.uint8).view(torch.float4_e2m1fn_x2)
    scale = torch.ones(3, 2).to(torch.float8_e4m3fn)

    def product(pairs: Any, scale: Any) -> Any:
        return lt.matmul(pairs, pairs.T, scale_a=scale, scale_b=scale.T, arch="sm_100a")

    assert torch.equal(
        torch.compile(product, fullgraph=True, backend="eager")(pairs, scale), product(pairs, scale)
    )


def test_pairs_of_float4_are_unpacked() -> None:
    """torch has two elements of e2m1 in a byte; b is a transposed matrix, whose pairs lie along K."""
    left, right = (
        lw.quantize(numbers(*shape).detach().numpy(), "nvfp4", axis=1) for shape in ((40, 96), (24, 96))
    )
    pairs = [
        torch.from_numpy(words[:, ::2] | words[:, 1::2] << 4).view(torch.float4_e2m1fn_x2)
        for words in (each.values.view("u1") for each in (left, right))
    ]
    scales = [torch.from_numpy(each.scales.view("u1")).view(torch.float8_e4m3fn) for each in (left, right)]
    result = lw.matmul(
        pairs[0], pairs[1].T, scale_a=scales[0], scale_b=scales[1].T, arch="sm_100a",
        out_dtype=torch.float32,
    )  # fmt: skip
    wanted = lw.matmul(
        left.values, right.values.T, scale_a=left.scales, scale_b=right.scales.T, arch="sm_100a",
        out_dtype="f32",
    )  # fmt: skip
    assert isinstance(result, torch.Tensor) and (result.numpy() == wanted).all()


class OfAnotherLibrary:
    """An array that says by DLPack alone what it is."""

    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor

    def __dlpack_device__(self) -> Any:
        return self.tensor.__dlpack_device__()

    def __dlpack__(self, **keywords: Any) -> Any:
        return self.tensor.__dlpack__(**keywords)


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "float16"])
def test_arrays_of_dlpack_may_have_types_that_numpy_has_not(dtype: str) -> None:
    a, b = (torch.randn(shape).to(getattr(torch, dtype)) for shape in ((3, 16), (16, 5)))
    product = lw.matmul(OfAnotherLibrary(a), OfAnotherLibrary(b), out_dtype="f32")
    assert np.asarray(product).tobytes() == lw.matmul(a, b, out_dtype="f32").numpy().tobytes()
