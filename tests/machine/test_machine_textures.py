"""Textures and surfaces on the machine: CUDA C++ kernels held to the programming guide's formulas."""

import itertools
from typing import Any

import numpy as np
import pytest

import lanewise as lw
from lanewise.errors import LanewiseError
from lanewise.machine import KernelFault, Unsupported
from lanewise.ptx.textures import AddressMode, Filter

SOURCE = """
extern "C" {
#define EACH int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return
__global__ void line(cudaTextureObject_t t, const float* x, float* o, int n) {
    EACH; o[i] = tex1D<float>(t, x[i]); }
__global__ void plane(cudaTextureObject_t t, const float2* x, float* o, int n) {
    EACH; o[i] = tex2D<float>(t, x[i].x, x[i].y); }
__global__ void space(cudaTextureObject_t t, const float3* x, float* o, int n) {
    EACH; o[i] = tex3D<float>(t, x[i].x, x[i].y, x[i].z); }
__global__ void layers(cudaTextureObject_t t, const float2* x, float* o, int n) {
    EACH; o[i] = tex2DLayered<float>(t, x[i].x, x[i].y, i % 3); }
__global__ void cube(cudaTextureObject_t t, const float3* x, float* o, int n) {
    EACH; o[i] = texCubemap<float>(t, x[i].x, x[i].y, x[i].z); }
__global__ void cubes(cudaTextureObject_t t, const float3* x, float* o, int n) {
    EACH; o[i] = texCubemapLayered<float>(t, x[i].x, x[i].y, x[i].z, i % 4); }
__global__ void face(cudaSurfaceObject_t s) {
    surfCubemapwrite(100.0f * blockIdx.x + threadIdx.x, s, 4 * threadIdx.x, threadIdx.y, blockIdx.x); }
__global__ void fetch(cudaTextureObject_t t, const int* x, uchar4* o, int n) {
    EACH; o[i] = tex1Dfetch<uchar4>(t, x[i]); }
__global__ void gather(cudaTextureObject_t t, const float2* x, float4* o, int n) {
    EACH; o[i] = tex2Dgather<float4>(t, x[i].x, x[i].y, 1); }
__global__ void level(cudaTextureObject_t t, const float2* x, float* o, int n) {
    EACH; o[i] = tex2DLod<float>(t, x[i].x, x[i].y, 0.0f); }
__global__ void wide(cudaTextureObject_t t, const float* x, short4* o, int n) {
    EACH; o[i] = tex1D<short4>(t, x[i]); }
__global__ void shift(cudaSurfaceObject_t from, cudaSurfaceObject_t to, int w, int h) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= w || y >= h) return;
    float v = surf2Dread<float>(from, 4 * (x + 1), y, cudaBoundaryModeZero);
    surf2Dwrite(v + surf2Dread<float>(from, 4 * x, y - 1, cudaBoundaryModeClamp), to, 4 * x, y);
}
__global__ void volume(cudaSurfaceObject_t s, int d) {
    int x = threadIdx.x, y = threadIdx.y;
    for (int z = 0; z < d; z++) surf3Dwrite((unsigned short)(z * 100 + x), s, 2 * x, y, z);
}
__global__ void beyond(cudaSurfaceObject_t s, int x) { surf1Dwrite(7.0f, s, x + 4 * threadIdx.x); }
__global__ void both(cudaTextureObject_t t, float* a, int n) { EACH; a[i] = tex1Dfetch<float>(t, i) + 1; }
}
"""
MODES: tuple[AddressMode, ...] = ("wrap", "clamp", "mirror", "border")
FILTERS: tuple[Filter, ...] = ("point", "linear")


@pytest.fixture(scope="module")
def kernels() -> Any:
    return lw.cuda(SOURCE, arch="sm_80")


def taken(index: np.ndarray, size: int, mode: str) -> np.ndarray:
    """The texel that an address mode gives for an index; -1 beyond the border."""
    if mode == "wrap":
        return index % size
    if mode == "mirror":
        inside = index % (2 * size)
        return np.where(inside < size, inside, 2 * size - 1 - inside)
    if mode == "border":
        return np.where((index >= 0) & (index < size), index, -1)
    return np.clip(index, 0, size - 1)


def guide(
    texels: np.ndarray, points: np.ndarray, modes: tuple[str, ...], linear: bool, border: float
) -> np.ndarray:
    """What the programming guide says of points in texels: the texel that a point lies in, or a blend.

    A weight has 8 bits of fraction; here, of the nearest 1/256.
    """
    sizes = texels.shape[::-1]
    corners = []
    for axis, size in enumerate(sizes):
        place = points[:, axis].astype(np.float64)
        fixed = np.floor(256 * place + 0.5).astype(np.int64) - 128 if linear else None
        if fixed is None:
            corners.append(
                [(taken(np.floor(place).astype(np.int64), size, modes[axis]), np.ones(len(place)))]
            )
        else:
            first, weight = fixed >> 8, (fixed & 255) / 256
            pair = ((first, 1 - weight), (first + 1, weight))
            corners.append([(taken(index, size, modes[axis]), part) for index, part in pair])
    total = np.zeros(len(points))
    for chosen in itertools.product(*corners):
        inside = np.all([index >= 0 for index, _ in chosen], axis=0)
        values = texels[tuple(index for index, _ in reversed(chosen))].astype(np.float64)
        total += np.where(inside, values, border) * np.prod([part for _, part in chosen], axis=0)
    return total


KERNELS = {1: "line", 2: "plane", 3: "space"}


@pytest.mark.parametrize("linear", [False, True], ids=["point", "linear"])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dimensions", [1, 2, 3])
def test_fetches_follow_the_guide(kernels: Any, dimensions: int, mode: str, linear: bool) -> None:
    rng = np.random.default_rng(dimensions)
    sizes = (7, 5, 4)[:dimensions]
    texels = rng.standard_normal(sizes[::-1]).astype(np.float32)
    # Multiples of 1/1024, away from where a coordinate lies between two texels or two weights.
    points = (np.rint(rng.uniform(-12, 18, (400, dimensions)) * 256) + 0.25) / 256
    modes = tuple(MODES[(MODES.index(mode) + axis) % 4] for axis in range(dimensions))
    for normalized in (False, True):
        given = (points / (np.array(sizes) if normalized else 1)).astype(np.float32)
        found = np.zeros(len(points), np.float32)
        image = lw.texture(
            texels, filter="linear" if linear else "point", address=modes, normalized=normalized, border=2.5
        )
        kernels[KERNELS[dimensions]][4, 128](image, given, found, len(points))
        # Without normalised coordinates there is no wrap and no mirror.
        effective = modes if normalized else tuple("border" if m == "border" else "clamp" for m in modes)
        wanted = guide(texels, points, effective, linear, 2.5)
        # Along several axes the products of weights are rounded too; the record of an H200 holds the bits.
        rounded = linear and dimensions > 1
        np.testing.assert_allclose(found, wanted, rtol=0, atol=0.03 if rounded else 1e-5)


def test_layers_gather_and_level(kernels: Any) -> None:
    rng = np.random.default_rng(0)
    stack = rng.standard_normal((3, 6, 9)).astype(np.float32)
    points = np.floor(rng.uniform(0, 1, (120, 2)) * (9, 6)).astype(np.float32) + np.float32(0.5)
    x, y = np.floor(points).astype(int).T
    found = np.zeros(120, np.float32)
    kernels["layers"][1, 128](lw.texture(stack, layered=True), points, found, 120)
    np.testing.assert_array_equal(found, stack[np.arange(120) % 3, y, x])
    kernels["level"][1, 128](lw.texture(stack[1]), points, found, 120)
    np.testing.assert_array_equal(found, stack[1, y, x])
    pairs = rng.standard_normal((6, 9, 2)).astype(np.float32)
    corners = np.zeros((120, 4), np.float32)
    kernels["gather"][1, 128](lw.texture(pairs, channels=2), points + np.float32(0.25), corners, 120)
    right, down = np.minimum(x + 1, 8), np.minimum(y + 1, 5)
    wanted = [pairs[down, x, 1], pairs[down, right, 1], pairs[y, right, 1], pairs[y, x, 1]]
    np.testing.assert_array_equal(corners, np.array(wanted).T)


#: The faces of a cube as vectors: where each lies, and its directions to the right and downwards.
CUBE = np.array([
    [[1, 0, 0], [0, 0, -1], [0, -1, 0]], [[-1, 0, 0], [0, 0, 1], [0, -1, 0]],
    [[0, 1, 0], [1, 0, 0], [0, 0, 1]], [[0, -1, 0], [1, 0, 0], [0, 0, -1]],
    [[0, 0, 1], [1, 0, 0], [0, -1, 0]], [[0, 0, -1], [-1, 0, 0], [0, -1, 0]],
])  # fmt: skip


@pytest.mark.parametrize("linear", [False, True], ids=["point", "linear"])
def test_a_cube_is_read_where_a_direction_meets_it(kernels: Any, linear: bool) -> None:
    rng = np.random.default_rng(3)
    size, cubes, count = 8, 3, 500
    texels = rng.standard_normal((cubes * 6, size, size)).astype(np.float32)
    # Places that are away from where a coordinate lies between two texels or two weights, at any distance.
    places = (np.rint(rng.uniform(0.01, size - 0.01, (count, 2)) * 256) + 0.25) / 256
    faces = rng.integers(0, 6, count)
    ahead, right, down = np.moveaxis(CUBE[faces], 1, 0)
    x, y = (2 * places / size - 1).T[..., None]
    directions = ((ahead + x * right + y * down) * rng.uniform(0.5, 9, (count, 1))).astype(np.float32)
    wanted = np.zeros((2, count))
    layers = np.minimum(np.arange(count) % 4, cubes - 1)  # the last one for numbers beyond it
    for number, cube in enumerate((np.zeros(count, int), layers)):
        for face in range(6 * cubes):
            here = (faces + 6 * cube) == face
            wanted[number, here] = guide(texels[face], places[here], ("clamp", "clamp"), linear, 0.0)
    found = np.zeros((2, count), np.float32)
    settings: dict[str, Any] = {"filter": "linear" if linear else "point", "normalized": True}
    one = lw.texture(texels[:6], cubemap=True, address="wrap", **settings)
    kernels["cube"][4, 128](one, directions, found[0], count)
    all_cubes = lw.texture(texels, cubemap=True, layered=True, **settings)
    kernels["cubes"][4, 128](all_cubes, directions, found[1], count)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=0.03 if linear else 0)


def test_a_surface_has_the_faces_of_a_cube_for_layers_and_other_shapes_are_refused(kernels: Any) -> None:
    faces = np.zeros((6, 4, 4), np.float32)
    kernels["face"][6, (4, 4)](lw.surface(faces, layered=True))
    expected = np.broadcast_to(100 * np.arange(6)[:, None, None] + np.arange(4), faces.shape)
    np.testing.assert_array_equal(faces, expected)
    for shape, layered in (((6, 4, 5), False), ((5, 4, 4), False), ((12, 4, 4), False), ((9, 4, 4), True)):
        with pytest.raises(LanewiseError, match="six square faces"):
            lw.texture(np.zeros(shape, np.float32), cubemap=True, layered=layered, normalized=True)
    with pytest.raises(LanewiseError, match="normalized=True"):
        lw.texture(faces, cubemap=True)
    points, found = np.ones((1, 3), np.float32), np.zeros(1, np.float32)
    with pytest.raises(KernelFault, match="is a cube texture, read as acube"):
        kernels["cubes"][1, 1](lw.texture(faces, cubemap=True, normalized=True), points, found, 1)


def test_elements_of_all_types_and_normalised_floats(kernels: Any) -> None:
    rng = np.random.default_rng(0)
    bytes_ = rng.integers(0, 256, (40, 4), dtype=np.uint8)
    places = rng.integers(0, 40, 100, dtype=np.int32)
    found = np.zeros((100, 4), np.uint8)
    kernels["fetch"][1, 128](lw.texture(bytes_, channels=4), places, found, 100)
    np.testing.assert_array_equal(found, bytes_[places])
    words = rng.integers(-(2**15), 2**15, (40, 4), dtype=np.int16)
    wide = np.zeros((100, 4), np.int16)
    kernels["wide"][1, 128](lw.texture(words, channels=4), places.astype(np.float32), wide, 100)
    np.testing.assert_array_equal(wide, words[places])
    floats = np.zeros(100, np.float32)
    for dtype in (np.uint8, np.int8, np.uint16, np.int16):
        info = np.iinfo(dtype)
        texels = rng.integers(info.min, info.max, 40, dtype=dtype, endpoint=True)
        kernels["line"][1, 128](
            lw.texture(texels, read="normalized_float"), places.astype(np.float32), floats, 100
        )
        wanted = np.maximum(texels[places] / np.float32(info.max), np.float32(-1))
        np.testing.assert_array_equal(floats, wanted.astype(np.float32))
    halves = rng.standard_normal(40).astype(np.float16)
    kernels["line"][1, 128](lw.texture(halves), places.astype(np.float32), floats, 100)
    np.testing.assert_array_equal(floats, halves[places].astype(np.float32))


def test_any_coordinate_is_answered(kernels: Any) -> None:
    """NaN, infinities and huge numbers read some texel or the border, and nothing else."""
    odd = [np.nan, -np.nan, np.inf, -np.inf, 3e38, -3e38, 2.0**31, -(2.0**31), 2.0**63, 1e-45, -0.0]
    points = np.array(list(itertools.product(odd, odd)), np.float32)
    texels = np.full((5, 7), 3, np.float32)
    for mode, filter_, normalized in itertools.product(MODES, FILTERS, (False, True)):
        found = np.zeros(len(points), np.float32)
        image = lw.texture(texels, address=mode, filter=filter_, normalized=normalized, border=3)
        kernels["plane"][1, 128](image, points, found, len(points))
        assert (found == 3).all()


def test_surfaces_read_and_write_the_array(kernels: Any) -> None:
    rng = np.random.default_rng(0)
    source = rng.standard_normal((20, 33)).astype(np.float32)
    target = np.zeros_like(source)
    configured = kernels["shift"][(2, 3), (32, 8)]
    configured(lw.surface(source), lw.surface(target), 33, 20)
    left = np.pad(source, ((0, 0), (0, 1)))[:, 1:]
    above = source[np.maximum(np.arange(20) - 1, 0)]
    np.testing.assert_array_equal(target, left + above)
    volume = np.zeros((3, 4, 8), np.uint16)
    kernels["volume"][1, (8, 4)](lw.surface(volume), 3)
    np.testing.assert_array_equal(volume[:, 2], np.arange(8) + 100 * np.arange(3)[:, None])
    report = lw.check(configured, lw.surface(source), lw.surface(target), 33, 20)
    assert report.ok


def test_a_surface_ends_where_it_ends(kernels: Any) -> None:
    row = np.zeros(16, np.float32)
    beyond = kernels["beyond"]
    message = (
        r"surface write of 4 bytes out of bounds\n.*sust.b.1d.b32.trap.*\n.*\n.*thread \(16, 0, 0\).*"
        r"\n    byte x = 64; argument 0 has rows of 64 bytes"
    )
    with pytest.raises(KernelFault, match=message) as fault:
        beyond[1, 32](lw.surface(row), 0)
    assert fault.value.kind == "out of bounds"
    assert (row == 7).all()
    with pytest.raises(KernelFault, match="misaligned surface write of 4 bytes"):
        beyond[1, 1](lw.surface(row), 2)
    (finding,) = lw.check(beyond[1, 32], lw.surface(row), 0).findings
    assert (finding.kind, finding.thread, finding.allocation) == ("out of bounds", (16, 0, 0), "argument 0")
    with pytest.raises(LanewiseError, match="blocks write into surfaces"):
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(1) as pool:
            beyond[2, 8](lw.surface(row), 0, executor=pool)


def test_wrong_handles_are_named(kernels: Any) -> None:
    points, found = np.zeros((4, 2), np.float32), np.zeros(4, np.float32)
    plane = kernels["plane"][1, 4]
    for given, reason in (
        (points, "the handle is 0x10000000000; pass lw.texture"),
        (12345, "the handle is 0x3039; pass lw.texture"),
        (lw.surface(np.zeros((4, 4), np.float32)), "argument 0 is a surface; pass lw.texture"),
        (lw.texture(np.zeros(4, np.float32)), "argument 0 is a 1d texture, read as 2d"),
    ):
        with pytest.raises(KernelFault, match=reason):
            plane(given, points, found, 4)
    (finding,) = lw.check(plane, 12345, points, found, 4).findings
    assert finding.kind == "bad texture" and "0x3039" in finding.message


def test_a_texture_of_an_array_that_the_kernel_writes_is_no_finding(kernels: Any) -> None:
    numbers = np.arange(64, dtype=np.float32)
    report = lw.check(kernels["both"][2, 32], lw.texture(numbers), numbers, 64)
    assert report.ok
    np.testing.assert_array_equal(numbers, np.arange(1, 65))


def test_an_executor_takes_textures(kernels: Any) -> None:
    from concurrent.futures import ThreadPoolExecutor

    numbers, places = np.arange(16, dtype=np.float32), np.arange(64, dtype=np.float32) / 4
    found = np.zeros(64, np.float32)
    with ThreadPoolExecutor(2) as pool:
        kernels["line"][4, 16](lw.texture(numbers), places, found, 64, executor=pool)
    np.testing.assert_array_equal(found, numbers[np.arange(64) // 4])


PTX = """
.version 8.0
.target sm_80
.address_size 64
{global}
.visible .entry k(.param .u64 image, .param .u64 out) {{
    .reg .b64 %rd<4>; .reg .f32 %f<8>; .reg .b32 %r<8>;
    ld.param.u64 %rd0, [image]; ld.param.u64 %rd1, [out];
    {line}
    st.global.u32 [%rd1], %r0;
    ret;
}}
"""


def test_queries() -> None:
    image = lw.texture(np.zeros((4, 6, 8), np.float32))
    for name, wanted in {"width": 8, "height": 6, "depth": 4}.items():
        found = np.zeros(1, np.uint32)
        module = lw.load(PTX.format(**{"global": ""}, line=f"txq.{name}.b32 %r0, [%rd0];"))
        module["k"][1, 1](image, found)
        assert found[0] == wanted
    module = lw.load(PTX.format(**{"global": ""}, line="suq.width.b32 %r0, [%rd0];"))
    module["k"][1, 1](lw.surface(np.zeros((2, 5), np.float32)), found)
    assert found[0] == 5
    module = lw.load(PTX.format(**{"global": ""}, line="txq.depth.b32 %r0, [%rd0];"))
    for image, wanted in (
        (lw.texture(np.zeros((3, 4, 5), np.uint8), layered=True), 3),
        (lw.texture(found), 0),
    ):
        module["k"][1, 1](image, found)
        assert found[0] == wanted


@pytest.mark.parametrize(
    ("declared", "line", "message"),
    [
        (
            ".global .texref t;",
            "tex.1d.v4.u32.s32 {%r0,%r1,%r2,%r3}, [t, {%r4}];",
            "texture or surface reference",
        ),
        ("", "tex.2d.v4.u32.s32 {%r0,%r1,%r2,%r3}, [%rd0, {%r4}];", "it takes 2 coordinates"),
        ("", "tex.2d.v4.u32.f32 {%r0,%r1}, [%rd0, {%f4,%f4}];", "its result takes 4 registers"),
        (
            "",
            "tex.2dms.v4.u32.s32 {%r0,%r1,%r2,%r3}, [%rd0, {%r4,%r4,%r4,%r4}];",
            "1d, 2d, 3d, a1d and a2d here",
        ),
        ("", "sust.b.cube.v4.b32.trap [%rd0, {%r4,%r4,%r4,%r4}], {%r0,%r1,%r2,%r3};", "a1d and a2d here"),
        (
            "",
            "tex.cube.v4.u32.s32 {%r0,%r1,%r2,%r3}, [%rd0, {%r4,%r4,%r4,%r4}];",
            "coordinates of a direction",
        ),
        ("", "sust.p.1d.b32.trap [%rd0, {%r4}], {%r0};", r"formatted access \(.p\) is not supported"),
        ("", "sured.b.add.a1d.u32.trap [%rd0, {%r4, %r4}], %r0;", "surfaces of layers have no reductions"),
        ("", "sured.b.and.1d.u32.trap [%rd0, {%r4}], %r0;", "and: b32"),
        ("", "txq.channel_order.b32 %r0, [%rd0];", "it can be asked for width"),
        ("", "istypep.texref %p0, %rd0;", "removed texture and surface references"),
    ],
)
def test_what_is_refused_before_anything_runs(declared: str, line: str, message: str) -> None:
    module = lw.load(PTX.format(**{"global": declared}, line=line))
    with pytest.raises(Unsupported, match=message):
        module["k"][1, 1](lw.texture(np.zeros(4, np.float32)), np.zeros(1, np.uint32))
