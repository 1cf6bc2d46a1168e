"""`lw.matmul` through the driver of a virtual B200: plain and block-scaled products have the CPU's bits.

The driver's library stays in a process once it is loaded, so the products run in a process of their own.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from doc_pages import environment
from virtual_gpu.on_device import ON_DEVICE

SCRIPT = """
from dataclasses import replace

from lanewise.linalg.launch import prepare
from lanewise.linalg.options import Options
from lanewise.linalg.rules import request_of

rng = np.random.default_rng(int(sys.argv[1]))


def workspace(like, size, counts=False):
    return OnDevice(gpu.driver, np.zeros(size, np.uint8))


def on_gpu(view):
    return view._replace(address=OnDevice(gpu.driver, np.ascontiguousarray(view.array)).address, device=0)


with lw.virtual_gpu("B200") as gpu:
    a, b = (rng.standard_normal(shape).astype(np.float16) for shape in ((144, 160), (160, 96)))
    wanted = lw.matmul(a, b, arch="sm_100a")
    of_a, of_b, out = (OnDevice(gpu.driver, each) for each in (a, b, np.zeros_like(wanted)))
    for _ in range(2):
        lw.matmul(of_a, of_b, out=out)
        print("float16", out.read().tobytes() == wanted.tobytes())
    # Only torch and CuPy have arrays of float8 on a GPU: the request is made for host arrays, and moved.
    prepare.workspace_for = workspace
    prepare.address_of = lambda memory: 0 if memory is None else memory.address
    a, b = (rng.standard_normal(shape).astype(lw.e4m3.dtype) for shape in ((144, 150), (150, 96)))
    scales = [lw.ue8m0.array(2.0 ** rng.integers(-3, 3, shape)) for shape in ((144, 5), (5, 96))]
    wanted = lw.matmul(a, b, scale_a=scales[0], scale_b=scales[1], arch="sm_100a", out_dtype="f32")
    swizzled = lw.SwizzledScales.of(scales[0]), lw.SwizzledScales.of(scales[1].T)
    for scale_a, scale_b in (scales, swizzled):
        request = request_of(a, b, Options(scale_a=scale_a, scale_b=scale_b, out_dtype="f32"))
        out = OnDevice(gpu.driver, request.result)
        request.a, request.b = on_gpu(request.a), on_gpu(request.b)
        request.out = request.out._replace(address=out.address, device=0)
        for name in ("scale_a", "scale_b"):
            scale = getattr(request, name)
            setattr(request, name, replace(scale, view=on_gpu(scale.view)))
        prepare.run(request, request.problem, None, None, 0)
        print("mxfp8", out.read().tobytes() == wanted.tobytes())
"""


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the driver's library is for Linux")
def test_products_on_a_virtual_b200_have_the_bits_of_the_cpu(tmp_path: Path) -> None:
    path = tmp_path / "products.py"
    path.write_text(ON_DEVICE + SCRIPT)
    command = [sys.executable, str(path), "1"]
    ended = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines() == ["float16 True"] * 2 + ["mxfp8 True"] * 2
