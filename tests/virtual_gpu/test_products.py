"""`lw.matmul` through the driver of a virtual GPU: its launches, made again and again, have the CPU's bits.

The driver's library stays in a process once it is loaded, so the products run in a process of their own.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from doc_pages import environment
from everything import EVERYTHING, sampled
from virtual_gpu.on_device import ON_DEVICE

PRODUCTS = """
rng = np.random.default_rng(int(sys.argv[1]))
with lw.virtual_gpu("H200") as gpu:
    for dtype in (np.float16, np.float64, np.int8):
        m, n, k = 16 * rng.integers(1, 10, 3)  # others need a workspace, which only torch and CuPy allocate
        a, b = ((3 * rng.standard_normal(shape)).astype(dtype) for shape in ((m, k), (n, k)))
        wanted = lw.matmul(a, b.T, arch="sm_90a")
        out = OnDevice(gpu.driver, np.zeros_like(wanted))
        of_a, of_b = OnDevice(gpu.driver, a), OnDevice(gpu.driver, b)
        of_b.__cuda_array_interface__ |= {"shape": b.T.shape, "strides": b.T.strides}
        for _ in range(3):
            lw.matmul(of_a, of_b, out=out)
            print(np.dtype(dtype).name, out.read().tobytes() == wanted.tobytes())
    print(len(gpu.launches) >= 9)
"""

ATTENTION = """
rng = np.random.default_rng(int(sys.argv[1]))
with lw.virtual_gpu("H200") as gpu:
    lengths = (30, 41, 41, 700)
    q, k, v, many = (rng.standard_normal((1, 2, each, 64)).astype(np.float16) for each in lengths)
    wide = rng.standard_normal((1, 2, 30, 128)).astype(np.float16)
    calls = [  # each differs from one before in one thing alone
        (q, k, v, {}), (q, k, v, {"causal": True}), (q, k, v, {"scale": 0.5}), (wide[..., :64], k, v, {}),
        (q, k[:, :1], v[:, :1], {}), (q, many, many, {"batch_invariant": True}), (q, k, v, {}),
    ]
    stream = int(gpu.driver.cuStreamCreate(1))
    for number, (*arrays, options) in enumerate(calls):
        wanted = lw.attention(*arrays, **options)
        out = OnDevice(gpu.driver, np.zeros_like(wanted))
        there = [OnDevice(gpu.driver, each) for each in arrays]
        if arrays[0].base is wide:
            whole = OnDevice(gpu.driver, wide)
            there[0].__cuda_array_interface__ |= {"data": (whole.address, False), "strides": wide.strides}
        for _ in range(2):
            lw.attention(*there, out=out, stream=stream if number % 2 else None, **options)
            gpu.driver.cuStreamSynchronize(stream)
            print("attention", out.read().tobytes() == wanted.tobytes())
    assert {launch.stream for launch in gpu.launches} == {0, stream}, gpu.launches
    print(len(gpu.launches) >= 14)
"""
ONE_AFTER_THE_OTHER = """
@lw.kernel
def doubled(x: lw.Ptr[lw.f32], out: lw.Ptr[lw.f32]):
    i = lw.thread_idx.x
    out[i] = lw.max(x[i] * 2, 0.0, nan=True)

rng = np.random.default_rng(int(sys.argv[1]))
a, b = (rng.standard_normal((48, 48)).astype(np.float16) for _ in range(2))
x = rng.standard_normal(32).astype(np.float32)
archs = {"H200": "sm_90a", "A100": "sm_80", "T4": "sm_75", "B200": "sm_100a"}
for name in [*archs, "H200"]:
    with lw.virtual_gpu(name) as gpu:
        wanted = lw.matmul(a, b, activation="gelu", arch=archs[name])
        out, of_a, of_b = (OnDevice(gpu.driver, each) for each in (np.zeros_like(wanted), a, b))
        of_x, of_result = OnDevice(gpu.driver, x), OnDevice(gpu.driver, np.zeros_like(x))
        for _ in range(20):
            lw.matmul(of_a, of_b, out=out, activation="gelu")
            doubled[1, 32](of_x, of_result)
        is_doubled = (of_result.read() == np.maximum(x * 2, 0)).all()
        print(name, out.read().tobytes() == wanted.tobytes(), is_doubled)
        assert len(gpu.launches) == 40
print(True)
"""

OFTEN = """
import torch

rng = np.random.default_rng(int(sys.argv[1]))
a, b = (rng.standard_normal((48, 48)).astype(np.float16) for _ in range(2))
weights = [lw.sparsify(b), lw.quantize(b[:, :16].repeat(3, 1).repeat(4, 0), "int4", group=64)]
for name, arch in (("H200", "sm_90a"), ("A100", "sm_80"), ("H200", "sm_90a")):
    wanted = lw.matmul(a, b, arch=arch)
    with lw.virtual_gpu(name) as gpu:
        there = [torch.tensor(each).cuda() for each in (a, b)]
        same = [lw.matmul(*there).cpu().numpy().tobytes() == wanted.tobytes() for _ in range(20)]
        import lanewise.torch
        before = len(gpu.launches)
        left, right = (each.requires_grad_() for each in there)
        product = lanewise.torch.matmul(left, right)
        same.append(product.detach().cpu().numpy().tobytes() == wanted.tobytes())
        (product.float() ** 2).sum().backward()
        same.append(len(gpu.launches) == before + 3)
        gradient = 2 * (a.astype(float) @ b) @ b.T
        error = np.abs(left.grad.float().cpu().numpy() - gradient).max()
        same.append(bool(error < 0.02 * np.abs(gradient).max()))
        for weight in weights if name == "H200" else ():  # copied to each GPU anew
            rows = np.ascontiguousarray(np.resize(a, (40, weight.shape[0])))
            result = lw.matmul(torch.tensor(rows).cuda(), weight).cpu().numpy()
            same.append(result.tobytes() == lw.matmul(rows, weight).tobytes())
        try:
            lw.tune(left.detach(), right.detach())
        except lw.LanewiseError as error:
            same.append("tune on the GPU itself" in str(error))
        try:
            lw.matmul(left.detach(), right.detach().to_sparse())
        except lw.LanewiseError as error:
            same.append("pass b.to_dense()" in str(error))
        for shape in ((16, 0), (0, 16)) if name == "H200" else ():
            same.append(lw.sparsify(torch.ones(shape).half().cuda()).dense().shape == shape)
        if name == "H200":  # a K of 0, whose scales of blocks are empty
            small = torch.ones(16, 0).to(torch.float8_e4m3fn).cuda()
            scales = {"scale_a": torch.ones(16, 0).cuda(), "scale_b": torch.ones(0, 1).cuda()}
            same.append(not lw.matmul(small, small.T, **scales).cpu().float().any())
        eights = torch.ones(16, 16).to(torch.int8).cuda()
        for scale in (0.0, -0.0):
            result = lw.matmul(eights, eights.T, scale_a=scale, out_dtype=torch.float32).cpu()
            same.append(not torch.signbit(result).any())
    print(name, all(same) or same, len(same))
print(True)
"""
#: What a script prints, beside whether there were as many launches.
SCRIPTS = {
    PRODUCTS: [f"{name} True" for name in ("float16", "float64", "int8") for _ in range(3)],
    ATTENTION: ["attention True"] * 14,
    ONE_AFTER_THE_OTHER: [f"{name} True True" for name in ("H200", "A100", "T4", "B200", "H200")],
    OFTEN: ["H200 True 32", "A100 True 27", "H200 True 32"],
}


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the driver's library is for Linux")
@sampled(2)
@pytest.mark.parametrize("script", SCRIPTS, ids=["products", "attention", "one after the other", "often"])
def test_products_on_a_virtual_gpu_have_the_bits_of_the_cpu(script: str, tmp_path: Path) -> None:
    if script is OFTEN:
        pytest.importorskip("torch")
    path = tmp_path / "products.py"
    path.write_text(ON_DEVICE + script)
    command = [sys.executable, str(path), "1"]
    for _ in range(2 if EVERYTHING else 1):  # nothing that a process keeps on disk may trip the next one
        ended = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False)
        assert ended.returncode == 0, ended.stderr
        assert ended.stdout.splitlines() == [*SCRIPTS[script], "True"]
