"""`lw.mbarrier`: barriers in shared memory that count arrivals and bytes, as TMA and pipelines use them.

A barrier completes a phase when all arrivals and all expected bytes are there; a wait names the parity of the
phase that it waits for, 0 for the first.
"""

from __future__ import annotations

from typing import Any, NoReturn

from lanewise.lang.hopper.cluster import rank_operand
from lanewise.lang.memory.array import dynamic_shared, shared
from lanewise.lang.memory.pointer import Pointer
from lanewise.lang.trace.builder import Address, Label, NotPredicate, Register, current
from lanewise.lang.trace.scalar import Scalar, scalar
from lanewise.lang.trace.traced import Node, describe
from lanewise.lang.trace.types import i32, pred, u32, u64

#: Arrivals that a phase can count, and bytes that it can expect.
MOST_ARRIVALS = (1 << 20) - 1
_BYTES = 8
_SCOPES = {"block": "cta", "cluster": "cluster"}


class Mbarrier(Node):
    """One barrier in shared memory: `init`, `arrive`, `expect`, `wait`, and the same one of another block."""

    __slots__ = ("pointer",)
    CHILDREN = ("pointer",)

    def __init__(self, pointer: Pointer) -> None:
        self.pointer = pointer

    def named(self, name: str) -> None:
        """Give the variable in the PTX the Python name that the barrier is bound to."""
        self.pointer.name_variable(name)

    @property
    def _is_remote(self) -> bool:
        return self.pointer.space == "shared::cluster"

    def _require_own(self, what: str) -> None:
        if self._is_remote:
            raise current().error(
                f"{what} of another block's mbarrier: only arrive and expect work on a remote one"
            )

    def init(self, count: object) -> None:
        """Prepare the barrier for phases of `count` arrivals; one thread does it."""
        self._require_own("init")
        current().need("mbarrier", 80, "7.0")
        current().emit("mbarrier.init.shared::cta.b64", self.pointer.operand, _count(count, "init"))

    def invalidate(self) -> None:
        """End the use as a barrier, so that its memory may serve for something else."""
        self._require_own("invalidate")
        current().need("mbarrier", 80, "7.0")
        current().emit("mbarrier.inval.shared::cta.b64", self.pointer.operand)

    def arrive(self, count: object = 1, *, expect: object = None, scope: str = "") -> None:
        """Arrive `count` times; `expect` announces bytes that asynchronous copies of this phase bring.

        What this thread wrote before is seen by those who wait in the `scope`, block or cluster: the block,
        and the cluster for a remote barrier. That of the cluster is a fence, which costs some hundred cycles:
        who has only read says scope="block".
        """
        builder = current()
        builder.need("mbarrier.arrive", 90, "8.0")
        level = _scope(scope or ("cluster" if self._is_remote else "block"), "an arrival")
        if expect is not None:
            if not isinstance(count, int) or count != 1:
                raise builder.error("an arrival that expects bytes counts once: leave count out")
            verb, operand = "arrive.expect_tx", _bytes(expect, "arrive")
        else:
            verb, operand = "arrive", _count(count, "arrive")
        space = "shared::cluster" if self._is_remote else "shared::cta"
        builder.emit(f"mbarrier.{verb}.release.{level}.{space}.b64", "_", self.pointer.operand, operand)

    def expect(self, bytes: object) -> None:
        """Announce bytes that asynchronous copies of this phase bring, without an arrival."""
        builder = current()
        builder.need("mbarrier.expect_tx", 90, "8.0")
        where = "cluster.shared::cluster" if self._is_remote else "cta.shared::cta"
        builder.emit(f"mbarrier.expect_tx.relaxed.{where}.b64", self.pointer.operand, _bytes(bytes, "expect"))

    def wait(self, parity: object, *, scope: str = "block") -> None:
        """Wait until the phase of a parity, 0 or 1, is complete; `scope` is block or cluster.

        A barrier that was just initialised counts as having completed the phase of parity 1.
        """
        builder, again = current(), Label("wait")
        builder.label(again)
        done = self.test(parity, scope=scope)
        builder.branch(again, NotPredicate(done.in_register))

    def test(self, parity: object, *, scope: str = "block") -> Scalar:
        """Return whether the phase of a parity is complete, after waiting a while: `mbarrier.try_wait`."""
        builder = current()
        self._require_own("a wait")
        builder.need("mbarrier.try_wait", 90, "8.0")
        level = _scope(scope, "a wait")
        is_over = Register("pred")
        builder.emit(
            f"mbarrier.try_wait.parity.acquire.{level}.shared::cta.b64",
            is_over,
            self.pointer.operand,
            _parity(parity),
        )
        return Scalar(pred, is_over)

    def remote(self, rank: object) -> Mbarrier:
        """Return the barrier at the same address in another block of the cluster, to arrive at."""
        self._require_own("remote")
        builder = current()
        builder.need("a cluster", 90, "7.8")
        address = builder.define(
            "mapa.shared::cluster.u32",
            "b32",
            self.pointer.address.in_register,
            rank_operand(rank, "mbarrier.remote"),
        )
        return Mbarrier(Pointer(u64, "shared::cluster", address, 0, _BYTES))

    def __str__(self) -> str:
        return f"an mbarrier in {self.pointer.space} memory"


class Mbarriers(Node):
    """An array of barriers in shared memory: `bars[i]`, with a Python or a traced index."""

    __slots__ = ("count", "pointer")
    CHILDREN = ("pointer",)

    def __init__(self, pointer: Pointer, count: int) -> None:
        self.pointer, self.count = pointer, count

    def named(self, name: str) -> None:
        """Give the variable in the PTX the Python name that the barriers are bound to."""
        self.pointer.name_variable(name)

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: object) -> Mbarrier:
        if isinstance(index, bool) or not isinstance(index, int | Scalar):
            raise current().error(f"the index of an mbarrier is an integer, not {describe(index)}")
        if isinstance(index, int) and not 0 <= index < self.count:
            raise current().error(
                f"there are {self.count} mbarriers, 0 to {self.count - 1}; there is no number {index}"
            )
        return Mbarrier(self.pointer.at(index))

    def __iter__(self) -> Any:
        return iter([self[number] for number in range(self.count)])

    def __getattr__(self, name: str) -> NoReturn:
        """Say that one barrier of the array arrives or waits, where a method of one is asked for."""
        if not name.startswith("_") and hasattr(Mbarrier, name):
            which = "bars[0]" if self.count == 1 else f"bars[i], with i from 0 to {self.count - 1}"
            raise current().error(
                f"{name} is for one mbarrier, and this is an array of {self.count}: call it on {which}"
            )
        raise AttributeError(f"an array of mbarriers has no {name!r}", name=name, obj=self)

    def init(self, count: object) -> None:
        """Prepare every barrier for phases of `count` arrivals; one thread does it."""
        for barrier in self:
            barrier.init(count)

    def __str__(self) -> str:
        return f"{self.count} mbarriers in {self.pointer.space} memory"


def mbarrier(count: int = 1, *, offset: int | None = None) -> Mbarriers:
    """Declare mbarriers in the block's shared memory; with `offset`, that many bytes into the dynamic part.

    Inside a kernel: `full = lw.mbarrier(4)`, then `full[stage].arrive(expect=nbytes)`.
    """
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise current().error(f"lw.mbarrier takes the number of barriers, at least 1; not {describe(count)}")
    if offset is None:
        return Mbarriers(shared(u64, count, align=_BYTES).pointer, count)
    return Mbarriers(dynamic_shared(u64, count, offset=offset).pointer, count)


def barrier_address(barrier: object, what: str, may_be_remote: bool = False) -> Address:
    """Return the address of this block's mbarrier, or another's, for an instruction that completes on it."""
    if isinstance(barrier, Mbarriers) and barrier.count == 1:
        barrier = barrier[0]
    if not isinstance(barrier, Mbarrier):
        raise current().error(
            f"{what} completes on an mbarrier, one of lw.mbarrier(n)[i]; not {describe(barrier)}"
        )
    if barrier._is_remote and not may_be_remote:
        raise current().error(f"{what} completes on an mbarrier of this block, not on a remote one")
    return barrier.pointer.operand


def _scope(scope: str, what: str) -> str:
    """Return PTX's name of a scope."""
    if scope not in _SCOPES:
        raise current().error(f"the scope of {what} is 'block' or 'cluster', not {scope!r}")
    return _SCOPES[scope]


def _parity(parity: object) -> object:
    """Return the operand for a parity: 0 or 1, an integer, traced or not."""
    builder = current()
    if isinstance(parity, bool) or not isinstance(parity, int | Scalar):
        raise builder.error(f"a parity is 0 or 1, an integer, traced or not; not {describe(parity)}")
    if isinstance(parity, int) and parity not in (0, 1):
        raise builder.error(f"a parity is 0 or 1, not {parity}: take the phase modulo 2")
    bit = scalar(parity, None, "a parity")
    if bit.dtype is pred:
        return builder.define("selp.b32", "b32", "1", "0", bit.in_register)
    if bit.dtype not in (i32, u32):
        raise builder.error(f"a parity is i32 or u32, not {describe(bit)}: convert it with .to(lw.i32)")
    return bit.operand


def _count(count: object, what: str) -> object:
    """Return the operand for a number of arrivals."""
    number = scalar(count, None, f"the count of {what}")
    if number.dtype not in (i32, u32):
        raise current().error(f"the count of {what} is an i32 or u32, not {describe(number)}")
    if number.constant is not None and not 1 <= number.constant <= MOST_ARRIVALS:
        raise current().error(f"the count of {what} is 1 to {MOST_ARRIVALS}, not {number.constant}")
    return number.operand


def _bytes(bytes: object, what: str) -> object:
    """Return the operand for a number of bytes that are expected."""
    number = scalar(bytes, None, f"the bytes of {what}")
    if number.dtype not in (i32, u32):
        raise current().error(f"the bytes of {what} are an i32 or u32, not {describe(number)}")
    if number.constant is not None and not 0 <= number.constant <= MOST_ARRIVALS:
        raise current().error(f"a phase expects 0 to {MOST_ARRIVALS} bytes, not {number.constant}")
    return number.operand
