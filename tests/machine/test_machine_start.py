"""A kernel in a new process: from disk what was compiled before, with the same results and complaints."""

import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

import lanewise as lw
from lanewise.jit import llvm_library, machine_code
from lanewise.machine.compile import images
from lanewise.recently_used import RecentlyUsed

KERNELS = Path(__file__).parent / "kernels"
#: What writes and compiles code, or resolves names: a kernel on disk needs nothing of it.
WRITERS = (
    "llvmlite.binding", "lanewise.jit.ir", "lanewise.arith.models", "lanewise.machine.compile.kernel_writer",
    "lanewise.machine.program.resolve", "lanewise.machine.program.basic_blocks",
    "lanewise.machine.tensor_core.fused_mma", "lanewise.gpu",
    "lanewise.ptx.tools.assembler", "concurrent.futures",
)  # fmt: skip
HGEMM = f"""
import sys
import numpy as np
import lanewise as lw
a = np.arange(2048, dtype=np.float16).reshape(32, 64) % 7
b = np.arange(1024, dtype=np.float16).reshape(16, 64) % 5
c = np.zeros((32, 16), np.float16)
module = lw.load({str(KERNELS / "hgemm_naive.sm_80.ptx")!r})
module["hgemm_naive"][(2, 2), 32](a, b, c, 32, 16, 64)
print(c.tobytes().hex())
print([name for name in {WRITERS!r} if name in sys.modules])
"""
VARIABLES = '''
import lanewise as lw
import numpy as np
module = lw.load("""
.version 8.0
.target sm_80
.address_size 64
.global .align 4 .u32 count[2] = {40, 7};
.const .align 8 .u64 place = generic(count);
.visible .entry k(.param .u64 out, .param .u32 far) {
    .reg .b64 %d<5>;
    .reg .b32 %r<4>;
    ld.param.u64 %d0, [out];
    ld.param.u32 %r2, [far];
    ld.const.u64 %d1, [place];
    ld.global.u32 %r0, [%d1];
    add.u32 %r0, %r0, 1;
    st.global.u32 [%d1], %r0;
    mul.wide.u32 %d2, %r2, 4;
    add.s64 %d0, %d0, %d2;
    st.global.u32 [%d0], %r0;
    ret;
}""")
out = np.zeros(1, np.uint32)
module["k"][1, 1](out, 0)
module["k"][1, 1](out, 0)
print(out[0])
try:
    module["k"][1, 1](out, 5)
except lw.LanewiseError as error:
    print(error)
'''


def run(code: str, cache: Path) -> str:
    package = str(Path(lw.__file__).parents[1])  # the one under test, whichever is installed
    environment = os.environ | {"LANEWISE_CACHE_DIR": str(cache), "PYTHONPATH": package}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_kernel_on_disk_is_run_without_what_compiles(tmp_path: Path) -> None:
    compiled, again = (run(HGEMM, tmp_path).splitlines() for _ in range(2))
    a = np.arange(2048, dtype=np.float16).reshape(32, 64) % 7
    b = np.arange(1024, dtype=np.float16).reshape(16, 64) % 5
    mma = lw.instruction("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16")
    assert compiled[0] == again[0] == mma.gemm(a, b.T, arch="sm_80").tobytes().hex()
    assert "lanewise.machine.compile.kernel_writer" in compiled[1]
    if llvm_library._functions() is not None:
        assert again[1] == "[]"


def test_variables_and_faults_are_the_same_from_disk(tmp_path: Path) -> None:
    compiled, again = (run(VARIABLES, tmp_path) for _ in range(2))
    assert compiled == again
    assert compiled.startswith("42\n")
    assert "global write of 4 bytes out of bounds" in compiled
    assert "line 18: st.global.u32 [%d0], %r0;" in compiled
    assert "16 bytes past the end of argument 0 (out)" in compiled


def test_functions_of_an_instrumentation_are_compiled_once_for_all_kernels(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also where nothing is kept on disk: they take seconds, far longer than a kernel."""
    begun: list[str] = []

    class Compilation:
        """Compiles nothing, and counts."""

        def begin_kept(self, key: str, write: Callable[[], str], how: object) -> Future[bytes]:
            begun.append(key)
            image = Future[bytes]()
            image.set_result(write().encode())
            return image

    monkeypatch.setattr(images, "_SHARED", RecentlyUsed[Any, Any](4))
    for _ in range(3):
        shared = images._SharedImages(cast(machine_code.Compilation, Compilation()))
        shared.add_library("a checker", lambda: "its text")
        assert shared.images() == [b"its text"]
    assert begun == ["a checker"]
