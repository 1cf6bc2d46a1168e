"""Mutants of real PTX, and a process that runs them: for `test_machine_fuzz.py`.

`python mutants.py SRC` is that process: it reads jobs, a line of JSON each, and answers each with a line.
"""

import json
import math
import os
import random
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, Queue
from typing import Any

#: Bytes before and behind an array that must stay as they are; what an array's address is a multiple of, so
#: that no launch works on a copy, and a tensor map may lie in it.
GUARD, ALIGNMENT = 4096, 128
#: What a line with an answer begins with.
MARK = "\x01answer "
#: Blocks of code that a block of threads may run.
STEPS = 200_000

_OPERAND = re.compile(
    r"%\w+(?:\.\w)?|\b0[xX][0-9a-fA-F]+\b|\b0[fFdD][0-9a-fA-F]+\b|\b\d+\b|\[[^\]]*\]|\$\w+|\b_\b"
)
_NUMBER = re.compile(r"(?<![\w%$.])-?(?:0[xXfFdD][0-9a-fA-F]+|\d+)\b")
_HEAD = re.compile(r"^(\s*(?:@!?%\w+\s+)?)([a-z][\w]*(?:[.:][\w:]+)*)(.*)$", re.DOTALL)


def _words(text: str) -> list[str]:
    return text.split()


_MORE = _words("""
    u8 s8 b8 u16 s16 b16 f16 f16x2 bf16 bf16x2 u32 s32 b32 f32 tf32 u64 s64 b64 f64 b128 pred e4m3x2
    e5m2x2 rn rz rm rp rna rni rzi rmi rpi sat satfinite ftz approx full relu lo hi wide to global
    shared local param const shared::cta shared::cluster generic volatile relaxed acquire release gpu
    sys cta v2 v4 v8 x1 x2 x4 trans sync aligned row col m8n8 m8n8k4 m16n8k8 m16n8k16 m16n8k32 m16n16k16
    eq ne lt le gt ge lo ls hs equ num nan and or xor popc cas exch add inc dec min max up down bfly idx
    any all ballot uni ca cg nc cc clamp wrap f4e b4e
    async bulk tensor tile im2col 1d 2d 3d 4d 5d bulk_group mbarrier::complete_tx::bytes multicast::cluster
    L2::cache_hint read wait_group commit_group expect_tx complete_tx noComplete parity cluster e4m3 e5m2 s32
    m64n8k16 m64n64k16 m64n256k16 m64n64k32 m64n64k8 sp mma_async proxy mbarrier_init tensormap::generic
    global_address box_dim global_dim swizzle_mode rank b1024
    cta_group::1 cta_group::2 kind::f16 kind::tf32 kind::f8f6f4 kind::i8 kind::mxf8f6f4 kind::mxf4
    kind::mxf4nvf4 block_scale scale_vec::1X scale_vec::2X scale_vec::4X block16 block32 ws ashift
    collector::a::fill collector::a::use collector::a::discard collector::b0::fill collector::b3::lastuse
    32x32b 16x64b 16x128b 16x256b 16x32bx2 x8 x16 x32 x64 x128 pack::16b unpack::16b red 128x256b 4x256b
    128x128b 64x128b 32x128b warpx4 warpx2::02_13 warpx2::01_23 b8x16 b6x16_p32 b4x16_p64
    mbarrier::arrive::one tile::gather4 tile::scatter4 im2col::w im2col::w::128 f32x2 is_canceled
    get_first_ctaid get_first_ctaid::x multicast::cluster::all e2m1 e3m2 e2m3 ue8m0 ue4m3 weak m16n16 m8n16
""")
_OPCODES = _words("""
    add sub mul mad fma div rem abs neg min max and or xor not shl shr lop3 prmt bfe bfi bfind brev clz
    popc setp set selp slct mov ld st cvt cvta isspacep atom red shfl vote match bar barrier membar
    fence bra call ret exit mma wmma ldmatrix stmatrix movmatrix cp.async sqrt rsqrt rcp sin cos ex2 lg2
    tanh copysign testp shf dp4a dp2a sad mul24 mad24 addc subc madc activemask redux elect nanosleep
    trap brkpt prefetch discard szext bmsk fns wgmma.mma_async wgmma.fence wgmma.commit_group
    wgmma.wait_group cp.async.bulk cp.async.bulk.tensor cp.reduce.async.bulk cp.async.bulk.commit_group
    cp.async.bulk.wait_group st.async red.async mbarrier.init mbarrier.arrive mbarrier.try_wait
    mbarrier.test_wait mbarrier.expect_tx mbarrier.inval barrier.cluster.arrive barrier.cluster.wait mapa
    getctarank fence.proxy.async setmaxnreg.inc setmaxnreg.dec tensormap.replace griddepcontrol.wait
    elect.sync tcgen05.alloc tcgen05.dealloc tcgen05.relinquish_alloc_permit tcgen05.ld tcgen05.st tcgen05.cp
    tcgen05.shift tcgen05.mma tcgen05.mma.sp tcgen05.mma.ws tcgen05.commit tcgen05.wait::ld tcgen05.wait::st
    tcgen05.fence::before_thread_sync tcgen05.fence::after_thread_sync clusterlaunchcontrol.try_cancel
    clusterlaunchcontrol.query_cancel st.bulk
""")
_NUMBERS = _words("""
    0 1 -1 2 3 4 7 8 15 16 17 31 32 33 63 64 127 128 255 256 1000 4095 65535 65536 2147483647
    -2147483648 4294967295 4294967296 9223372036854775807 -9223372036854775808 18446744073709551615
    0f7F800000 0fFFC00000 0f00000001 0d7FF0000000000000 0x7000000000 0x10000000000 0x700000000000
    0x710000000000 0x8020010 0x8400490 0x10200490 0x8820000 0x8020480 0x401000080000 0x4000404000080000
    0x400000100000 0x200000 0x600000 0x10000 512
""")


#: Arguments that few launches get, by the names under which `serve` makes them.
STRANGE = (
    "none", "text", "0-d", "complex", "big-endian", "read-only", "reversed", "every other", "column", "empty",
    "misaligned", "structured", "objects", "dates", "masked", "nan", "2**64", "a list",
)  # fmt: skip


def alone(text: str, entry: str) -> str:
    """PTX with one entry of several: a mutant is then of what runs."""
    import lanewise as lw

    module = lw.load(text)
    for name in list(module.entries):
        if name != entry:
            module.items.remove(module.entries[name])
    return str(module)


class Mutator:
    """Changes PTX at random, one to three times."""

    def __init__(self, text: str, seed: int) -> None:
        self.random = random.Random(seed)
        self.text = text
        self.modifiers = [*_MORE, *re.findall(r"(?<=\.)[a-z]\w*", text)]
        self.operands = _OPERAND.findall(text) or ["%r1"]
        self.labels = re.findall(r"^\s*(\$\w+):", text, re.MULTILINE)

    def mutant(self) -> str:
        """One of them."""
        text = self.text
        for _ in range(self.random.choice((1, 1, 1, 2, 3))):
            text = self.random.choices(*zip(*self.ways, strict=True))[0](text)
        return text

    @property
    def ways(self) -> list[tuple[Callable[[str], str], int]]:
        """Every kind of change, and how often it is made."""
        lines = self.in_a_line
        return [
            (lines(self.opcode), 4), (lines(self.modifier), 8), (lines(self.operand), 8),
            (lines(self.number), 8), (lines(self.address), 6), (lines(self.label), 3),
            (lines(self.guard), 2), (lines(self.swap), 4),
            (lines(lambda line: ""), 3), (lines(lambda line: line + "\n" + line), 2), (self.move, 2),
            (self.declaration, 4), (self.characters, 1),
        ]  # fmt: skip

    def in_a_line(self, change: Callable[[str], str]) -> Callable[[str], str]:
        """A change of one instruction."""

        def changed(text: str) -> str:
            lines = text.split("\n")
            places = [n for n, line in enumerate(lines) if line.rstrip().endswith(";")]
            if places:
                place = self.random.choice(places)
                lines[place] = change(lines[place])
            return "\n".join(lines)

        return changed

    def opcode(self, line: str) -> str:
        match = _HEAD.match(line)
        if not match:
            return line
        head = match[2].split(".")
        return match[1] + ".".join([self.random.choice(_OPCODES), *head[1:]]) + match[3]

    def modifier(self, line: str) -> str:
        match = _HEAD.match(line)
        if not match:
            return line
        head = match[2].split(".")
        place = self.random.randrange(1, len(head) + 1)
        kind = self.random.random()
        if kind < 0.6 and place < len(head):
            head[place] = self.random.choice(self.modifiers)
        elif kind < 0.8 and place < len(head):
            del head[place]
        else:
            head.insert(place, self.random.choice(self.modifiers))
        return match[1] + ".".join(head) + match[3]

    def _replaced(self, pattern: re.Pattern[str], line: str, new: Callable[[str], str]) -> str:
        found = list(pattern.finditer(line))
        if not found:
            return line
        match = self.random.choice(found)
        return line[: match.start()] + new(match[0]) + line[match.end() :]

    def operand(self, line: str) -> str:
        return self._replaced(_OPERAND, line, lambda _: self.random.choice(self.operands))

    def number(self, line: str) -> str:
        return self._replaced(_NUMBER, line, lambda _: self.random.choice(_NUMBERS))

    def address(self, line: str) -> str:
        offset = self.random.choice((*_NUMBERS[:29], str(self.random.randrange(-64, 64))))
        return self._replaced(
            re.compile(r"\[[^\]]*\]"), line, lambda old: f"{old[:-1].split('+')[0]}+{offset}]"
        )

    def label(self, line: str) -> str:
        if not self.labels:
            return line
        return self._replaced(re.compile(r"\$\w+"), line, lambda _: self.random.choice(self.labels))

    def guard(self, line: str) -> str:
        guards = re.findall(r"@!?%\w+", self.text) or ["@%p1"]
        bare = re.sub(r"^\s*@!?%\w+", "", line)
        return self.random.choice(("", self.random.choice(guards) + " ")) + bare.lstrip()

    def swap(self, line: str) -> str:
        match = _HEAD.match(line)
        if not match:
            return line
        parts = re.split(r",(?![^{\[]*[}\]])", match[3].rstrip("; \t"))
        self.random.shuffle(parts)
        return f"{match[1]}{match[2]} {','.join(parts)};"

    def move(self, text: str) -> str:
        """A line to another place."""
        lines = text.split("\n")
        lines.insert(self.random.randrange(len(lines)), lines.pop(self.random.randrange(len(lines))))
        return "\n".join(lines)

    def declaration(self, text: str) -> str:
        """A declaration or directive: its type, size, alignment, number of registers, target."""
        lines = text.split("\n")
        places = [n for n, line in enumerate(lines) if line.lstrip().startswith(".")]
        if not places:
            return text
        place = self.random.choice(places)
        if self.random.random() < 0.5:
            lines[place] = self._replaced(
                re.compile(r"(?<=\.)[a-z]\w*"), lines[place], lambda _: self.random.choice(self.modifiers)
            )
        else:
            lines[place] = self._replaced(
                re.compile(r"\d+"), lines[place], lambda _: self.random.choice(_NUMBERS)
            )
        return "\n".join(lines)

    def characters(self, text: str) -> str:
        """A few bytes."""
        letters = list(text)
        for _ in range(self.random.randrange(1, 4)):
            letters[self.random.randrange(len(letters))] = chr(self.random.randrange(1, 255))
        return "".join(letters)


@dataclass(frozen=True)
class Seed:
    """A kernel to mutate: PTX, entry, shape of a launch, and arguments.

    An argument is a number, the bytes of an array as (bytes,), or a tensor map of an array of so many bytes
    as (bytes, shape, box, swizzle, type).
    """

    name: str
    text: str
    entry: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    shared: int
    arguments: tuple[Any, ...]
    cluster: int = 0

    def job(self, seed: int) -> str:
        """A mutant of it, as the process takes it."""
        chance = random.Random(seed)

        def passed(each: Any) -> Any:
            if chance.random() > 0.04:
                return each
            if isinstance(each, tuple) and len(each) > 1:
                return [each[0], *self._other_map(each[1:], chance)]
            if isinstance(each, tuple):
                return [chance.randrange(4096)]
            return chance.choice((0, 1, -1, 1 << 20, 2**31 - 1))

        arguments = [*map(passed, self.arguments)]
        if chance.random() < 0.1:
            arguments[chance.randrange(len(arguments))] = chance.choice(STRANGE)
        mutated = chance.random() < 0.8  # some kernels as they are: other arguments, shapes and orders alone
        return json.dumps({
            "text": Mutator(self.text, seed).mutant() if mutated else self.text, "entry": self.entry,
            "grid": self._shape(self.grid, chance), "block": self._shape(self.block, chance),
            "shared": self.shared if chance.random() > 0.03 else chance.choice((0, 7, 1024, 50_000, -4)),
            "arguments": arguments, "seed": seed, "check": chance.random() < 0.3,
            "schedule": chance.choice(("in order", "reverse", chance.randrange(1 << 40), ["reverse", seed])),
            "completion": chance.choice((None, None, "early", "late", chance.randrange(1 << 40))),
            "cluster": self.cluster if chance.random() > 0.05 else chance.choice((0, 1, 2, 3, 8, 17)),
        })  # fmt: skip

    @staticmethod
    def _other_map(about: tuple[Any, ...], chance: random.Random) -> list[Any]:
        """Another box, or another swizzle."""
        shape, box, swizzle, dtype = about
        if chance.random() < 0.5:
            return [shape, [chance.choice((8, 16, 64, 256)) for _ in box], swizzle, dtype]
        return [shape, box, chance.choice(("none", "32B", "64B", "128B")), dtype]

    @staticmethod
    def _shape(shape: tuple[int, ...], chance: random.Random) -> list[int]:
        """A grid or block, now and then with another number in it."""
        made = list(shape)
        if chance.random() < 0.05:
            made[chance.randrange(len(made))] = chance.choice((0, -1, 1, 2, 3, 31, 33, 65, 1025, 1 << 31))
        return made


class Runner:
    """A process that runs mutants; another takes its place if it dies or takes too long.

    `limit` is in seconds of its processor time, since a busy machine may leave it little. A process that
    waits for ever spends none, so it is ended after ten times as long.
    """

    def __init__(self, source: Path, limit: float) -> None:
        self.source, self.limit = source, limit
        self.start()

    def start(self) -> None:
        """A fresh process."""
        self.process = subprocess.Popen(
            [sys.executable, __file__, str(self.source)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, errors="replace",
        )  # fmt: skip
        self.answers: Queue[str] = Queue()
        threading.Thread(target=self._listen, args=(self.process, self.answers), daemon=True).start()

    @staticmethod
    def _listen(process: subprocess.Popen[str], answers: Queue[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            answers.put(line)
        answers.put("")

    def run(self, job: str) -> str:
        """`ok`, `refused: …` for a LanewiseError, else what went wrong."""
        assert self.process.stdin is not None
        self.process.stdin.write(job + "\n")
        self.process.stdin.flush()
        said: list[str] = []
        begun, spent = time.monotonic(), self.processor_time()
        while True:
            try:
                line = self.answers.get(timeout=1)
            except Empty:
                waited, ran = time.monotonic() - begun, self.processor_time() - spent
                if ran < self.limit and waited < 60 * self.limit:
                    continue
                self.close()
                self.start()
                return f"HANGS: no answer in {waited:.0f} s, {ran:.0f} of which it ran\n{''.join(said)}"
            if not line:
                code = self.process.wait()
                self.start()
                return f"CRASH: exit status {code}\n{''.join(said)}"
            if line.startswith(MARK):
                return str(json.loads(line.removeprefix(MARK)))
            said.append(line)

    def processor_time(self) -> float:
        """The seconds that the process has run; where the system does not tell, those since the epoch."""
        try:
            fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return time.time()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def close(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.wait()


def serve() -> None:
    """Run mutants until there are no more."""
    import faulthandler

    import numpy as np

    import lanewise as lw

    faulthandler.enable()

    def guarded(size: int, chance: np.random.Generator) -> tuple[Any, Any]:
        # A view would belong to the array around it: the memory before and behind is of no array.
        memory = bytearray(b"\xa5" * (size + 2 * GUARD + ALIGNMENT))
        whole = np.frombuffer(memory, np.uint8)
        begin = GUARD + -(whole.ctypes.data + GUARD) % ALIGNMENT
        inside = np.frombuffer(memoryview(memory)[begin : begin + size], np.uint8)
        inside[:] = chance.integers(0, 70, size, np.uint8)
        return (whole[:begin], whole[begin + size :]), inside

    def argument(each: Any, chance: np.random.Generator) -> tuple[Any, Any]:
        if not isinstance(each, list):
            return (), strange.get(each, each)
        guards, inside = guarded(each[0], chance)
        if len(each) == 1:
            return guards, inside
        _, shape, box, swizzle, dtype = each
        return guards, lw.tensor_map(inside.view(dtype).reshape(shape), tuple(box), swizzle=swizzle)

    floats = np.arange(64, dtype=np.float32)
    read_only = floats.copy()
    read_only.flags.writeable = False
    strange: dict[str, Any] = {
        "none": None, "text": "x", "0-d": np.array(3.0, np.float32), "complex": floats.astype(np.complex64),
        "big-endian": floats.astype(">f4"), "read-only": read_only, "reversed": floats[::-1],
        "every other": floats[::2], "column": floats.reshape(8, 8)[:, 3], "empty": floats[:0],
        "misaligned": np.zeros(65, np.uint8)[1:].view(np.float32), "structured": np.zeros(4, "f4,i8"),
        "objects": np.array([1, "x"], object), "dates": np.zeros(3, "datetime64[s]"),
        "masked": np.ma.masked_array(floats, floats > 3), "nan": float("nan"), "2**64": 1 << 64,
        "a list": [1, 2, 3],
    }  # fmt: skip
    assert set(strange) == set(STRANGE)

    for line in sys.stdin:
        job = json.loads(line)
        chance = np.random.default_rng(job["seed"])
        pairs: list[tuple[Any, Any]] = []
        try:
            pairs += [argument(each, chance) for each in job["arguments"]]
            module = lw.load(job["text"])
            name = (
                job["entry"] if job["entry"] in module.entries else next(iter(module.entries), job["entry"])
            )
            kernel = module[name][tuple(job["grid"]), tuple(job["block"]), job["shared"]]
            cluster = {"cluster": job["cluster"]} if job["cluster"] else {}
            blocks = max(1, abs(math.prod(job["grid"])))
            steps = max(STEPS // blocks, 1000)  # blocks that all spin have to end in time
            values = [value for _, value in pairs]
            if job["check"]:
                str(lw.check(kernel, *values, steps=steps // 10, schedule=job["schedule"], **cluster))
            else:
                kernel(*values, steps=steps, schedule=job["completion"], **cluster)
            answer = "ok"
        except lw.LanewiseError as error:
            answer = f"refused: {type(error).__name__}: {error}"
        except Exception as error:
            import traceback

            answer = f"RAISES {type(error).__name__}: {error}\n{traceback.format_exc()}"
        for guards, _ in pairs:
            if not all((guard == 0xA5).all() for guard in guards):
                answer = f"WRITES outside an argument ({answer})"
        print("\n" + MARK + json.dumps(answer), flush=True)  # a kernel may have printed half a line


if __name__ == "__main__":
    sys.path.insert(0, sys.argv[1])
    serve()
