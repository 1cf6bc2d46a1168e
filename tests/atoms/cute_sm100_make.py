"""Makes cute_sm100_record.txt: what CuTe itself prints for random tiles of SM100's operations.

`python cute_sm100_make.py INCLUDE [INCLUDE …] --seed 7 --cases 60 > cute_sm100_record.txt`, with the folders
of headers of CUTLASS 4.7 and CUDA. Programs of some cases each are compiled for the host by g++; those that
CuTe refuses at compile time are left out. The record has seeds 1 (4 cases) and 11 (16).
"""

import argparse
import random
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

HEAD = """\
# What CuTe itself printed for random tiles: CUTLASS 4.7 (GitHub), compiled for the host with g++ by
# cute_sm100_make.py, integer constants without their underscore. A block is a line that says what was made,
# then what it is. case: operation ; M N K of the tile ; block of the pair ; order of C ; swizzles of A and B
# in shared memory. copy: operation ; thread, for the accumulator of the case before.
"""
PROGRAM = """\
#include <cute/tensor.hpp>
#include <cute/atom/mma_atom.hpp>
#include <cute/atom/copy_atom.hpp>
#include <cute/atom/mma_traits_sm100.hpp>
#include <cute/atom/copy_traits_sm100.hpp>
#include <cutlass/detail/sm100_tmem_helper.hpp>
#include <cstdio>
using namespace cute;
using namespace cutlass;
template <class T>
void say(char const* name, T const& what) { printf("%s ", name); print(what); printf("\\n"); }
template <class Copy, class Acc, class Part>
void say_copy(Copy const& copy, Acc const& acc, Part const& part, int thread) {
  say("TiledLayout_TV", typename Copy::TiledLayout_TV{});
  say("Tiler_MN", typename Copy::Tiler_MN{});
  auto thr = copy.get_slice(thread);
  if constexpr (is_tmem<Acc>::value) {
    say("tmem", thr.partition_S(acc)); say("other", thr.partition_D(part).layout());
    say("shape", shape(thr.partition_D(part)));
  }
}
template <class Copy, class Acc, class Part>
void say_store(Copy const& copy, Acc const& acc, Part const& part, int thread) {
  say("TiledLayout_TV", typename Copy::TiledLayout_TV{});
  say("Tiler_MN", typename Copy::Tiler_MN{});
  auto thr = copy.get_slice(thread);
  say("tmem", thr.partition_D(acc)); say("other", thr.partition_S(part).layout());
  say("shape", shape(thr.partition_S(part)));
}
int main() {
"""
KINDS = {
    "TF32": (["tfloat32_t"], ["float"], 8), "F16BF16": (["half_t", "bfloat16_t"], ["float", "half_t"], 16),
    "S8": (["int8_t", "uint8_t"], ["int32_t"], 32),
    "F8F6F4": (["float_e4m3_t", "float_e5m2_t"], ["float", "half_t"], 32),
    "MXF8F6F4": (["float_e4m3_t", "float_e5m2_t"], ["float"], 32), "MXF4": (["float_e2m1_t"], ["float"], 64),
}  # fmt: skip
SWIZZLES = ("INTER", "SW32", "SW64", "SW128")
BYTES = {"INTER": 16, "SW32": 32, "SW64": 64, "SW128": 128}
BITS = {"float": 32, "tfloat32_t": 32, "half_t": 16, "bfloat16_t": 16, "float_e2m1_t": 4, "int32_t": 32}


class Said(NamedTuple):
    """What the name of an operation says."""

    m: int
    n: int
    k: int
    a: str
    b: str
    d: str
    majors: list[str]
    ts: bool
    pair: bool


def operation(rng: random.Random) -> tuple[str, Said]:
    """A random operation, and what its name says."""
    kind = rng.choice(list(KINDS))
    types, sums, k = KINDS[kind]
    pair, scaled = rng.random() < 0.5, kind.startswith("MX")
    ts = not scaled and rng.random() < 0.3
    m = (256 if pair else 128) if scaled else rng.choice((128, 256) if pair else (64, 128))
    step = 32 if pair and (ts or kind == "S8") else 16 if pair or ts or kind == "S8" else 8
    n = rng.choice([step * i for i in range(1, 256 // step + 1)])
    a, d = rng.choice(types), rng.choice(sums)
    b = rng.choice(types)
    if "half_t" in (d,) and kind == "F16BF16":
        a = b = "half_t"
    if kind == "F16BF16":
        b = a
    majors = ["K", "K"]
    if not scaled:
        majors = ["K" if ts else rng.choice(("K", "MN")), rng.choice(("K", "MN"))]
        if kind == "S8" and n % (32 if pair else 16):
            majors[1] = "K"
    words = [a, b, d]
    if scaled:
        words.append(
            "float_ue8m0_t" if kind == "MXF8F6F4" else rng.choice(("float_ue4m3_t", "float_ue8m0_t"))
        )
    words += [str(m), str(n)]
    if kind == "MXF4":
        words.append("32" if words[3] == "float_ue8m0_t" else "16")
    words += [f"UMMA::Major::{each}" for each in majors]
    name = f"SM100_MMA_{kind}{'_2x1SM' * pair}_{'TS' if ts else 'SS'}<{', '.join(words)}>"
    return name, Said(m, n, k, a, b, d, majors, ts, pair)


def swizzle(rng: random.Random, major: str, rows: int, depth: int, dtype: str) -> str:
    """A swizzle whose row fits the tile."""
    bits = BITS.get(dtype, 8)
    extent = (depth if major == "K" else rows) * bits // 8
    fitting = [each for each in SWIZZLES if extent % BYTES[each] == 0]
    # 32-bit elements that are MN-major have another swizzle of 128 bytes
    if major == "MN" and bits == 32:
        fitting = [each for each in fitting if each == "INTER"]
    return rng.choice(fitting) if fitting else ""


LOADS = [
    f"{lanes}dp{bits}b{num}x"
    for lanes, bits, most in ((32, 32, 128), (16, 64, 128), (16, 128, 64), (16, 256, 32), (16, 32, 128))
    for num in (1, 2, 4, 8, 16, 32, 64, 128)
    if num <= most
]


def copies(rng: random.Random, said: Said) -> list[tuple[str, int]]:
    """Some copies that the accumulator of a case takes, each with a thread."""
    lanes = said.m // (2 if said.pair else 1)
    columns = said.n // (2 if said.pair and lanes == 64 else 1)
    half = said.d == "half_t"
    found = []
    for name in rng.sample(LOADS, len(LOADS)):
        rows, bits, num = map(int, re.findall(r"\d+", name))
        width = bits // 32 * num * (2 if half else 1) * (2 if (rows, bits) == (16, 32) else 1)
        if rows == 32 and lanes == 64 and not said.pair:
            continue
        if width <= columns and columns % width == 0:
            found.append(
                (f"SM100_TMEM_{rng.choice(('LOAD', 'STORE'))}_{name}{'_16b' * half}", rng.randrange(128))
            )
        if len(found) == 3:
            break
    return found


def case(rng: random.Random) -> list[str]:
    """The lines of C++ of one random case."""
    name, said = operation(rng)
    m, n, k = said.m, said.n, said.k
    while True:
        times = rng.choice((1, 1, 2, 3)), rng.choice((1, 1, 2)), rng.choice((1, 2, 4, 8))
        columns = (m * times[0] // (2 if said.pair else 1)) * n * times[1] / 128
        if columns <= 512 or times[:2] == (1, 1):
            break
    tile = m * times[0], n * times[1], k * times[2]
    block = rng.randrange(2) if said.pair else 0
    order = rng.choice(("row", "column"))
    majors, blocks = said.majors, 2 if said.pair else 1
    swizzles = [
        swizzle(rng, each, extent // blocks, tile[2], str(dtype))
        for each, extent, dtype in zip(majors, (m, n), (said.a, said.b), strict=True)
    ]
    words = " ".join(map(str, tile)), str(block), order, " ".join(each or "-" for each in swizzles)
    text = f"case {name} ; {' ; '.join(words)}"
    major = f"({tile[1]},1)" if order == "row" else f"(1,{tile[0]})"
    stride = "make_stride(Int<{}>{{}},Int<{}>{{}})".format(*eval(major))
    lines = [
        f'{{ puts("{text}");',
        f"auto mma = make_tiled_mma({name}{{}});",
        'say("thr_layout_vmnk", mma.get_thr_layout_vmnk());',
        'say("LayoutA_TV", typename decltype(mma)::AtomLayoutA_TV{});',
        'say("LayoutB_TV", typename decltype(mma)::AtomLayoutB_TV{});',
        'say("LayoutC_TV", typename decltype(mma)::AtomLayoutC_TV{});',
        f"auto cta = mma.get_slice(Int<{block}>{{}});",
        f"Tensor gC = make_tensor(make_gmem_ptr(({said.d}*)nullptr), "
        f"make_layout(make_shape(Int<{tile[0]}>{{}},Int<{tile[1]}>{{}}), {stride}));",
        "auto tC = cta.partition_C(gC); auto acc = cta.make_fragment_C(tC);",
        'say("partition_C", tC.layout()); say("fragment_C", acc);',
        'say("columns", cutlass::detail::find_tmem_tensor_col_offset(acc));',
        f"auto shape_a = partition_shape_A(mma, make_shape(Int<{tile[0]}>{{}},Int<{tile[2]}>{{}}));",
        f"auto shape_b = partition_shape_B(mma, make_shape(Int<{tile[1]}>{{}},Int<{tile[2]}>{{}}));",
        'say("partition_shape_A", shape_a); say("partition_shape_B", shape_b);',
    ]
    for which, each, dtype, kind in zip("ab", swizzles, (said.a, said.b), majors, strict=True):
        upper = which.upper()
        if which == "a" and said.ts:
            lines.append(
                'say("fragment_A", cta.make_fragment_A(make_tensor((half_t*)nullptr, make_layout(shape_a))));'
            )
        elif each:
            atom = f"UMMA::Layout_{kind}_{each}_Atom<{dtype}>"
            lines.append(
                f"{{ auto s = UMMA::tile_to_mma_shape({atom}{{}}, append(shape_{which}, Int<3>{{}})); "
                f'say("smem_{upper}", s.layout_b()); alignas(1024) static uint8_t memory[1 << 20]; '
                f"Tensor t = make_tensor(make_smem_ptr(reinterpret_cast<{dtype}*>(memory)), s); "
                f'say("fragment_{upper}", cta.make_fragment_{upper}(t).layout()); }}'
            )
    for name_of, thread in copies(rng, said):
        verb = "copy" if "LOAD" in name_of else "store"
        lines.append(f'puts("copy {name_of} ; {thread}");')
        lines.append(f"say_{verb}(make_tmem_copy({name_of}{{}}, acc), acc, tC, {thread});")
    warp = rng.randrange(4)
    lines.append(f'puts("warp {warp}"); {{ auto w = make_tmem_warp_partitioner(acc);')
    lines.append(f'auto s = w.get_slice({warp}); say("tmem", s.partition(acc));')
    lines.append('say("other", s.partition(tC).layout()); }')
    return [*lines, "}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("include", nargs="+")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--cases", type=int, default=60)
    parser.add_argument("--each", type=int, default=10, help="cases of a program")
    chosen = parser.parse_args()
    rng = random.Random(chosen.seed)
    cases = [case(rng) for _ in range(chosen.cases)]
    sys.stdout.write(HEAD)
    with tempfile.TemporaryDirectory() as folder:
        for start in range(0, len(cases), chosen.each):
            source, program = Path(folder) / "cases.cpp", Path(folder) / "cases"
            lines = [line for each in cases[start : start + chosen.each] for line in each]
            source.write_text(PROGRAM + "\n".join(lines) + "\n}\n")
            flags = [f"-I{each}" for each in chosen.include]
            made = subprocess.run(
                ["g++", "-std=c++17", "-w", "-O0", *flags, source, "-o", program],
                text=True,
                capture_output=True,
            )
            if made.returncode:
                sys.stderr.write(made.stderr[:4000])
                sys.stderr.write(f"\ncases {start} on do not compile\n")
                continue
            said = subprocess.run([program], text=True, capture_output=True, check=True).stdout
            said = re.sub(r"ERROR: cast_smem_ptr_to_uint.*\n", "", said)  # descriptors of the host
            sys.stdout.write(re.sub(r"\b_(?=\d)", "", said))
            sys.stdout.flush()


if __name__ == "__main__":
    main()
