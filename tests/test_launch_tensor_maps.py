"""Tensor maps as arguments: by value, by pointer and in variables, on the machine and on a pretended GPU."""

import gc
import weakref
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import lanewise as lw
from everything import sampled
from fake_gpu import FakeArray, FakeDriver, FakeTensor, fake
from lanewise.errors import LanewiseError
from lanewise.gpu import plan
from lanewise.isa.tensor_map import decode
from lanewise.isa.tensor_map_fields import MAP_ALIGNMENT
from lanewise.ptx import parse

__all__ = ["fake"]  # the fixture

HEAD = ".version 8.0\n.target sm_90a\n.address_size 64\n"
#: Copies 128 bytes, a word for each lane, and the address that they were read at.
COPY = """
{{
    .reg .b64 %rd<8>; .reg .b32 %r<4>; .reg .pred %p;
    {address}
    mov.u32 %r0, %tid.x; mul.wide.u32 %rd2, %r0, 4; add.u64 %rd3, %rd0, %rd2;
    ld{space}.u32 %r1, [%rd3];
    ld.param.u64 %rd4, [out]; add.u64 %rd5, %rd4, %rd2; st.global.u32 [%rd5], %r1;
    setp.eq.u32 %p, %r0, 0; @%p st.global.u64 [%rd4 + 128], %rd0;
    ret;
}}
"""
MODULE = HEAD + (
    ".global .align 64 .b8 in_global[128];\n.const .align 64 .b8 in_const[128];\n"
    ".visible .entry by_value(.param .align 64 .b8 map[128], .param .u64 out)"
    + COPY.format(address="mov.b64 %rd0, map; cvta.param.u64 %rd0, %rd0;", space="")
    + ".visible .entry by_pointer(.param .u64 map, .param .u64 out)"
    + COPY.format(address="ld.param.u64 %rd0, [map];", space=".global")
    + ".visible .entry from_global(.param .u64 out)"
    + COPY.format(address="mov.u64 %rd0, in_global;", space=".global")
    + ".visible .entry from_const(.param .u64 out)"
    + COPY.format(address="mov.u64 %rd0, in_const;", space=".const")
    + """.visible .entry first(.param .align 64 .b8 map[128], .param .u64 array, .param .u64 out) {
        .reg .b64 %rd<4>; .reg .f32 %f; .reg .pred %p; .reg .b32 %r;
        ld.param.u64 %rd0, [map]; ld.param.u64 %rd1, [array]; ld.param.u64 %rd2, [out];
        ld.global.f32 %f, [%rd0]; st.global.f32 [%rd2], %f;
        setp.eq.u64 %p, %rd0, %rd1; selp.u32 %r, 1, 0, %p; st.global.u32 [%rd2 + 4], %r;
        ret;
    }
    .visible .entry write(.param .u64 map) {
        .reg .b64 %rd<2>; ld.param.u64 %rd0, [map]; st.global.u64 [%rd0], %rd0; ret;
    }
    .visible .entry number(.param .u32 map) { ret; }
    """
)


def read(kernel: str, *arguments: Any, module: Any = None) -> tuple[int, Any, int]:
    """Return the address and the tensor that a kernel found in 128 bytes, and where they lay."""
    out = np.zeros(34, np.uint32)
    (module or parse(MODULE))[kernel][1, 32](*arguments, out)
    return *decode(out[:32].tobytes()), int(out[32:].view(np.uint64)[0])


@pytest.mark.parametrize("kernel", ["by_value", "by_pointer"])
def test_a_kernel_gets_the_bytes(kernel: str) -> None:
    array = np.zeros((64, 256), np.float16)
    tensor_map = lw.tensor_map(array[::2, 64:192], (8, 64), swizzle="128B")
    address, tensor, place = read(kernel, tensor_map)
    assert tensor == tensor_map.tensor and address % (1 << 21) == 128
    assert place % MAP_ALIGNMENT == 0


def test_the_array_has_the_address_that_it_has_as_an_argument() -> None:
    array = np.arange(64 * 64, dtype=np.float32).reshape(64, 64)
    out = np.zeros(2, np.float32)
    view = array[8:16, 16:48]
    parse(MODULE)["first"][1, 1](lw.tensor_map(view, (4, 32)), array[8:9, 16:], out)
    assert out[0] == array[8, 16] and out.view(np.uint32)[1] == 1


def test_it_agrees_with_lw_address() -> None:
    array = np.zeros((64, 64), np.float32)
    tensor_map = lw.tensor_map(array[:, 4:36], (8, 32))
    assert bytes(tensor_map) == tensor_map.encode(lw.address(array) + 16)
    assert read("by_value", tensor_map)[0] == lw.address(array) + 16


@pytest.mark.usefixtures("only_new_objects")
@sampled(2)
@pytest.mark.parametrize(("kernel", "name"), [("from_global", "in_global"), ("from_const", "in_const")])
def test_variables_of_the_module_hold_maps(kernel: str, name: str) -> None:
    module = parse(MODULE)
    tensor_map = lw.tensor_map(np.zeros((64, 64), np.float32), (8, 32))
    module.globals[name] = tensor_map
    address, tensor, _ = read(kernel, module=module)
    assert tensor == tensor_map.tensor and address == lw.address(tensor_map.array)
    kept = weakref.ref(tensor_map.array)
    del tensor_map
    gc.collect()
    assert kept() is not None
    out = np.zeros(2, np.float32)
    module["first"][1, 1](module.globals[name].array.tobytes(), out, out)  # its memory is there for a kernel
    module.globals[name] = lw.tensor_map(np.zeros((64, 64), np.float32), (8, 32))
    gc.collect()
    assert kept() is None


@pytest.mark.usefixtures("only_new_objects")
def test_a_map_keeps_its_array() -> None:
    tensor_map = lw.tensor_map(np.full((64, 64), 7, np.float32), (8, 32))
    out = np.zeros(2, np.float32)
    gc.collect()
    parse(MODULE)["first"][1, 1](tensor_map, out, out)
    assert out[0] == 7


def test_launches_on_an_executor() -> None:
    array = np.arange(64 * 64, dtype=np.float32).reshape(64, 64)
    out = np.zeros(2, np.float32)
    with ThreadPoolExecutor(2) as executor:
        kernel = parse(MODULE)["first"][1, 1]
        kernel(lw.tensor_map(array[3:5, 8:40], (1, 32)), array, out, executor=executor)
    assert out[0] == array[3, 8]


def test_a_check_knows_the_array() -> None:
    array = np.zeros((64, 64), np.float32)
    out = np.zeros(2, np.float32)
    report = lw.check(parse(MODULE)["first"][1, 1], lw.tensor_map(array, (8, 32)), array, out)
    assert not report.findings


@pytest.mark.parametrize(
    ("kernel", "array", "words"),
    [
        ("number", np.zeros((8, 8), np.float32), r"argument 0 \(map\) is .u32 of 4 bytes; a tensor map is"),
        (
            "write",
            np.zeros((8, 8), np.float32),
            r"read-only memory[\s\S]*the tensor map of argument 0 \(map\)",
        ),
    ],
)
def test_what_a_kernel_cannot_do_with_one(kernel: str, array: Any, words: str) -> None:
    with pytest.raises(LanewiseError, match=words):
        parse(MODULE)[kernel][1, 1](lw.tensor_map(array, (8, 4)))


def test_a_tensor_that_is_not_aligned() -> None:
    array = np.zeros(65, np.float32)[1:].reshape(8, 8)
    with pytest.raises(LanewiseError, match=r"argument 0 \(map\): .* multiple of 16 bytes; 0x\w+4 is 4 past"):
        read("by_value", lw.tensor_map(array, (8, 4)))


def test_a_texture_is_no_value_of_a_variable() -> None:
    with pytest.raises(LanewiseError, match="in_global cannot hold a texture"):
        parse(MODULE).globals["in_global"] = lw.texture(np.zeros(8, np.float32))


# on a pretended GPU -----------------------------------------------------------------------------------------


def test_a_gpu_gets_the_bytes_for_the_arrays_address(fake: FakeDriver) -> None:
    fake.sizes = (128, 8)
    tensor_map = lw.tensor_map(FakeArray(0x2000, strides=(64, 4)), (4, 8))
    for _ in range(3):
        parse(MODULE)["by_value"][1, 32](tensor_map, FakeArray(8192))
    assert [launch.values[0] for launch in fake.launches] == 3 * [tensor_map.encode(0x2000)]
    assert tensor_map.tensor.strides == (64,)


@pytest.mark.usefixtures("only_new_objects")
def test_a_pointer_is_to_memory_of_the_map_that_is_made_once(fake: FakeDriver) -> None:
    fake.sizes = (8, 8)
    tensor_map = lw.tensor_map(FakeArray(0x2000), (4, 8))
    for _ in range(3):
        parse(MODULE)["by_pointer"][1, 32](tensor_map, FakeArray(8192))
    copied = [call[2] for call in fake.calls if call[0] == "cuMemcpyHtoD_v2"]
    assert copied == [tensor_map.encode(0x2000)]
    del tensor_map
    gc.collect()
    assert sum(call[0] == "cuMemFree_v2" for call in fake.calls) == 1


def test_a_gpu_takes_no_map_of_a_numpy_array_beside_its_own(fake: FakeDriver) -> None:
    fake.sizes = (128, 8)
    with pytest.raises(LanewiseError, match="takes all its arrays on one GPU"):
        parse(MODULE)["by_value"][1, 32](lw.tensor_map(np.zeros((8, 8), np.float32), (8, 4)), FakeArray(8192))


class MappedTensor(FakeTensor):
    """A tensor that tells its type as well."""

    dtype = "torch.float32"

    def element_size(self) -> int:
        return 4


def test_a_warm_launch_takes_the_map_that_it_is_given(fake: FakeDriver) -> None:
    fake.sizes = (128, 8)
    maps = [lw.tensor_map(MappedTensor(address), (4, 8)) for address in (0x2000, 0x3000)]
    configured = parse(MODULE)["by_value"][1, 32]
    for turn in range(6):
        configured(maps[turn % 2], MappedTensor(0x4000 + 16 * turn))
    assert len(configured._plans) == 1
    assert (fake.from_machine_code > 0) == (plan.OFTEN == 1)
    for turn, launch in enumerate(fake.launches):
        assert launch.values[0] == maps[turn % 2].encode((0x2000, 0x3000)[turn % 2])
        assert launch.values[1] == (0x4000 + 16 * turn).to_bytes(8, "little")
    maps[0].array.address = 0x5000  # a tensor whose storage was replaced
    for _ in range(2):
        configured(maps[0], MappedTensor())
        assert fake.launches[-1].values[0] == maps[0].tensor.encode(0x5000)
    maps[0].array = FakeTensor(0x6000)  # of another type
    configured(maps[0], MappedTensor())
    assert fake.launches[-1].values[0] == maps[0].tensor.encode(0x6000)
    elsewhere = lw.tensor_map(MappedTensor(0x2000, ordinal=1), (4, 8))
    with pytest.raises(LanewiseError, match="takes all its arrays on one device"):
        configured(elsewhere, MappedTensor())


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float8_e4m3fn", "int8"])
def test_torch_tensors_in_host_memory(dtype: str) -> None:
    """A map of a tensor, and of a view of it, is that of the same memory; kernels read and write it."""
    torch = pytest.importorskip("torch")
    tensor = torch.zeros((64, 64)).to(getattr(torch, dtype))
    size = tensor.element_size()
    tensor_map = lw.tensor_map(tensor[::2], (8, 16))
    names = {"float32": "f32", "bfloat16": "bf16"}
    assert tensor_map.tensor.type == names.get(dtype, "u8") and tensor_map.tensor.strides == (2 * 64 * size,)
    _, found, _ = read("by_value", tensor_map)
    assert found == tensor_map.tensor
    if dtype == "float32":
        tensor[0, 0] = 7
        out = np.zeros(2, np.float32)
        parse(MODULE)["first"][1, 1](tensor_map, tensor, out)  # the argument is the same memory
        assert out[0] == 7 and out.view(np.uint32)[1] == 1


def test_other_arrays_in_host_memory() -> None:
    class Shared:
        """An array of another library, which speaks DLPack."""

        def __init__(self, array: Any) -> None:
            self.array = array

        def __dlpack__(self, **options: Any) -> Any:
            return self.array.__dlpack__(**options)

        def __dlpack_device__(self) -> Any:
            return self.array.__dlpack_device__()

    array = np.zeros((64, 64), np.float32)
    assert lw.tensor_map(Shared(array), (8, 16)).encode(0) == lw.tensor_map(array, (8, 16)).encode(0)
    assert lw.address(lw.tensor_map(Shared(array), (8, 16)).array) == lw.address(array)


def test_an_address_in_place_of_an_array() -> None:
    array = np.arange(64 * 64, dtype=np.float32).reshape(64, 64)
    raw = lw.encode_tiled("f32", lw.address(array), (64, 64), (256,), (16, 8), swizzle="64B")
    assert raw == bytes(lw.tensor_map(array, (8, 16), swizzle="64B"))
    assert lw.encode_tiled("float32", 0, (64, 64), (256,), (16, 8)) == lw.encode_tiled(
        "f32", 0, (64, 64), (256,), (16, 8)
    )
    for changes, says in (
        ({"address": 8}, "a multiple of 16 bytes"),
        ({"strides": (256, 1)}, "a tensor of 2 axes has 1 strides, not 2"),
        ({"dims": (64, 0)}, "has 0 elements"),
        ({"box": (16, 1 << 40)}, "1 to 256 are legal"),
        ({"dtype": "f7"}, "the type of a tensor is one of"),
        ({"swizzle": array}, "swizzle is one of .* not ndarray"),
        ({"address": 1.5}, "an address is an integer, not float"),
    ):
        given: dict[str, Any] = {
            "dtype": "f32", "address": 0, "dims": (64, 64), "strides": (256,), "box": (16, 8),
        }  # fmt: skip
        with pytest.raises(LanewiseError, match=says):
            lw.encode_tiled(**given | changes)
