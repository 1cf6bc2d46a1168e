"""Columns of pixels (im2col) on a GPU: the driver's maps, and every byte that the CPU machine leaves."""

import ctypes
import os
import random
from typing import Any

import numpy as np
import pytest

import lanewise as lw
from gpu.device import torch_here
from im2col_cases import Case, arguments, module, random_case, random_interleaved, run, sources
from im2col_map_cases import random_im2col
from lanewise.isa.tensor_map_fields import FILLS, INTERLEAVES, L2_PROMOTIONS, MAP_BYTES, SWIZZLES
from tensor_copy_cases import IMAGE, THREADS

torch = torch_here("tensor copies need sm_90", lambda capability: capability >= (9, 0))

pytestmark = pytest.mark.gpu
#: How many random cases are tried of each kind, and the first seed.
CASES, SEED = int(os.environ.get("IM2COL_CASES", "60")), int(os.environ.get("IM2COL_SEED", "1"))


def on_gpu(array: Any) -> Any:
    return torch.from_numpy(array.view(np.uint8).copy()).cuda()


def run_on_gpu(case: Case) -> tuple[Any, Any]:
    """Run a case on the device; return shared memory and the tensor's memory after it."""
    memory, image = (on_gpu(each) for each in sources(case))
    encoded = np.frombuffer(case.tensor().encode(memory.data_ptr()), np.uint8)
    module(case)["copy"][1, THREADS, IMAGE](*arguments(case, encoded, image))
    return image.cpu().numpy(), memory.cpu().numpy()


@pytest.mark.parametrize("kind", ["load", "interleaved load", "store", "add", "interleaved store"])
def test_the_same_bytes_as_the_machine(kind: str) -> None:
    chance = random.Random(SEED)
    wrong = []
    for _ in range(CASES):
        verb = kind.removeprefix("interleaved ")
        case = (random_interleaved if kind.startswith("interleaved") else random_case)(chance, verb)
        for mine, other in zip(run(case), run_on_gpu(case), strict=True):
            if not np.array_equal(mine, other):
                wrong.append((case, np.nonzero(mine != other)[0][:8].tolist()))
    assert not wrong, (len(wrong), wrong[:4])


def test_the_bytes_are_the_drivers() -> None:
    torch.zeros(1, device="cuda")  # makes a context current
    encode = ctypes.CDLL("libcuda.so.1").cuTensorMapEncodeIm2col
    memory = (ctypes.c_uint8 * (MAP_BYTES + 64))()
    place = ctypes.addressof(memory) + -ctypes.addressof(memory) % 64
    chance = random.Random(SEED)
    for _ in range(500):
        tensor, address = random_im2col(chance)
        status = encode(
            ctypes.c_void_p(place),
            tensor.element.driver_code,
            ctypes.c_uint32(tensor.rank),
            ctypes.c_void_p(address),
            (ctypes.c_uint64 * 5)(*tensor.dims),
            (ctypes.c_uint64 * 5)(*tensor.strides),
            (ctypes.c_int32 * 3)(*tensor.lower),
            (ctypes.c_int32 * 3)(*tensor.upper),
            ctypes.c_uint32(tensor.channels),
            ctypes.c_uint32(tensor.pixels),
            (ctypes.c_uint32 * 5)(*tensor.element_strides),
            INTERLEAVES[tensor.interleave].code,
            SWIZZLES[tensor.swizzle].code,
            L2_PROMOTIONS[tensor.l2_promotion],
            FILLS[tensor.fill],
        )
        assert (status == 0) == (tensor.violation() is None), tensor
        if not status:
            assert tensor.encode(address) == ctypes.string_at(place, MAP_BYTES), tensor


def test_multicast_to_the_blocks_of_a_cluster() -> None:
    """A column goes to both blocks, and each mbarrier hears of all its bytes."""
    text = """
.version 8.0
.target sm_90a
.address_size 64
.visible .entry k(.param .align 64 .b8 map[128], .param .u64 out) .reqnctapercluster 2, 1, 1 {
    .reg .pred %p<4>; .reg .b32 %r<12>; .reg .b64 %rd<12>; .reg .b16 %h<4>;
    .shared .align 128 .b8 column[640];
    .shared .align 8 .b64 bar;
    mov.u32 %r0, %tid.x; mov.u32 %r1, %cluster_ctarank; mov.u32 %r2, column;
    mov.b64 %rd3, map; cvta.param.u64 %rd4, %rd3; ld.param.u64 %rd0, [out];
    setp.ne.u32 %p1, %r0, 0; @%p1 bra READY;
    mbarrier.init.shared::cta.b64 [bar], 1; fence.mbarrier_init.release.cluster;
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 640;
READY:
    barrier.cluster.arrive; barrier.cluster.wait;
    setp.ne.u32 %p2, %r1, 0; or.pred %p2, %p1, %p2; mov.u16 %h0, 1; mov.u16 %h1, 2; mov.u16 %h2, 3;
    @!%p2 cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes\
.multicast::cluster [%r2], [%rd4, {0, -1, -1, 0}], [bar], {%h0, %h1}, %h2;
WAIT:
    mbarrier.try_wait.parity.shared::cta.b64 %p3, [bar], 0; @!%p3 bra WAIT;
    mad.lo.u32 %r5, %r1, 640, 0; shl.b32 %r6, %r0, 4; add.u32 %r7, %r2, %r6;
    ld.shared.v4.b32 {%r8, %r9, %r10, %r11}, [%r7]; add.u32 %r5, %r5, %r6; cvt.u64.u32 %rd5, %r5;
    add.u64 %rd6, %rd0, %rd5; st.global.v4.b32 [%rd6], {%r8, %r9, %r10, %r11};
    barrier.cluster.arrive; barrier.cluster.wait;
    ret;
}
"""
    host = np.arange(2 * 5 * 7 * 32, dtype=np.uint16).reshape(2, 5, 7, 32)
    found = []
    for images, out in (
        (host, np.zeros(1280, np.uint8)),
        (on_gpu(host).view(torch.int16).reshape(host.shape), torch.zeros(1280, dtype=torch.uint8).cuda()),
    ):
        map = lw.tensor_map(images, (20, 16), im2col=((-1, -1), (-1, -1)), swizzle="32B")
        lw.load(text)["k"][2, 40](map, out)
        found.append(out if isinstance(out, np.ndarray) else out.cpu().numpy())
    assert (
        found[0].any()
        and np.array_equal(found[0], found[1])
        and np.array_equal(found[0][:640], found[0][640:])
    )
