"""Triton's kernels, unchanged, under a virtual GPU; skipped where Triton is not installed."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import lanewise as lw
from doc_pages import ROOT, blocks, environment
from lanewise.cli import main
from lanewise.virtual_gpu import VirtualGPU

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")
if torch.cuda.is_available():
    pytest.skip("torch has a GPU of its own here", allow_module_level=True)

from virtual_gpu import triton_kernels as kernels  # noqa: E402  # needs triton


@pytest.fixture
def gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[VirtualGPU]:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    with lw.virtual_gpu("H100") as gpu:
        yield gpu


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_kernel_runs_on_tensors_of_either_side(gpu: VirtualGPU, device: str) -> None:
    x, y = (torch.randn(1000, device=device) for _ in range(2))
    out = torch.empty_like(x)
    kernels.add[(4,)](x, y, out, 1000, BLOCK=256)
    assert out.equal(x + y)
    assert [(each.kernel, each.grid) for each in gpu.launches] == [("add", (4, 1, 1))]


def test_scalars_of_every_type_arrive(gpu: VirtualGPU) -> None:
    out = torch.zeros(5, dtype=torch.float64, device="cuda")
    kernels.scalars[(1,)](out, -3, 1 << 40, 2.5, True, None)
    assert out.tolist() == [-3, 1 << 40, 2.5, 1, 0]


def test_a_product_with_descriptors_and_warp_specialisation_is_right(gpu: VirtualGPU) -> None:
    from triton.tools.tensor_descriptor import TensorDescriptor

    a, b = (torch.randn(128, 128, device="cuda", dtype=torch.float16) for _ in range(2))
    c = torch.empty(128, 128, device="cuda", dtype=torch.float32)
    operands = [TensorDescriptor.from_tensor(each, [64, 64]) for each in (a, b, c)]
    kernels.product[(2, 2)](*operands, 128)
    torch.testing.assert_close(c, a.float() @ b.float(), atol=1e-2, rtol=1e-2)
    assert "wgmma" in next(iter(kernels.product.device_caches[gpu_number()][0].values())).asm["ptx"]


def gpu_number() -> int:
    return int(triton.runtime.driver.active.get_current_device())


def test_an_autotuned_kernel_runs_with_its_first_configuration_that_compiles(gpu: VirtualGPU) -> None:
    out = torch.zeros(64, dtype=torch.int32, device="cuda")
    kernels.tuned[(1,)](out)
    assert out[0] == 32
    assert len(gpu.launches) == 2  # to see that it runs, and then as asked
    assert [name for name, _ in gpu.autotuned] == ["tuned"]


def test_findings_have_the_line_of_the_kernel(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        Path(kernels.__file__).read_text()
        + "import torch\nx = torch.ones(64, device='cuda')\nfor _ in range(3): racy[(1,)](x, x)\n"
    )
    line = next(n for n, text in enumerate(script.read_text().splitlines(), 1) if "# racy" in text)
    assert main(["check", "--gpu", "A100", str(script)]) == 1
    said = capsys.readouterr()
    assert said.out.count("race:") == 1
    assert f"script.py:{line}" in said.out
    assert "3 launches of 1 kernel were checked; errors found: 1" in said.err


def test_a_pointer_beyond_its_tensor_is_a_sentence(gpu: VirtualGPU) -> None:
    x = torch.ones(1000, device="cuda")
    with pytest.raises(lw.LanewiseError, match=r"out of bounds[\s\S]*argument 2"):
        kernels.add[(4,)](x, x, x[:900].clone(), 1000, BLOCK=256)


def test_two_virtual_gpus_have_kernels_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    x = torch.ones(32)
    for name in ("A100", "H100"):
        with lw.virtual_gpu(name) as gpu:
            kernels.add[(1,)](x, x, torch.empty_like(x), 32, BLOCK=32)
            assert len(gpu.launches) == 1


def test_the_readme_shows_what_a_check_of_its_example_prints(tmp_path: Path) -> None:
    (shown,) = (each for each in blocks(ROOT / "README.md", "text") if "examples/virtual_gpu" in each)
    command, *lines = shown.splitlines()
    ran = subprocess.run(
        [sys.executable, "-m", *command.removeprefix("$ ").split()],
        cwd=ROOT, env=environment() | {"TRITON_CACHE_DIR": str(tmp_path)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 1, ran.stderr
    assert re.sub("0x[0-9a-f]+", "…", ran.stdout).startswith(re.sub("0x[0-9a-f]+", "…", "\n".join(lines)))
