"""Where a thread is: its block, its warp, its lane. All are i32, and known not to be negative."""

from __future__ import annotations

from typing import Any, NoReturn

from lanewise.lang.builder import current
from lanewise.lang.types import i32
from lanewise.lang.values import Scalar


def special(name: str, hint: str) -> Scalar:
    """A special register, read once at the beginning of the kernel."""
    builder = current()
    with builder.at_entry():
        register = builder.define("mov.u32", "b32", f"%{name}", hint=hint)
    return Scalar(i32, register, natural=True)


class Coordinates:
    """Three special registers: `.x`, `.y` and `.z`."""

    def __init__(self, register: str, what: str) -> None:
        self._register, self.__doc__ = register, what

    @property
    def x(self) -> Scalar:
        """Along the first dimension."""
        return special(f"{self._register}.x", f"{self._register}_x")

    @property
    def y(self) -> Scalar:
        """Along the second dimension."""
        return special(f"{self._register}.y", f"{self._register}_y")

    @property
    def z(self) -> Scalar:
        """Along the third dimension."""
        return special(f"{self._register}.z", f"{self._register}_z")

    def complain(self) -> NoReturn:
        """Say that one of the three is meant."""
        raise current().error(f"{self.__doc__} are three: take .x, .y or .z of them")

    def __iter__(self) -> Any:
        return iter((self.x, self.y, self.z))

    def __repr__(self) -> str:
        return f"<{self.__doc__}>"


thread_idx = Coordinates("tid", "the thread's coordinates in its block")
block_idx = Coordinates("ctaid", "the block's coordinates in the grid")
block_dim = Coordinates("ntid", "the threads of a block")
grid_dim = Coordinates("nctaid", "the blocks of the grid")


def lane_id() -> Scalar:
    """The lane: the thread's number in its warp, 0 to 31."""
    return special("laneid", "lane")


def thread_rank() -> Scalar:
    """The thread's number in its block: x + y·dim_x + z·dim_x·dim_y."""
    found: Scalar = thread_idx.x + block_dim.x * (thread_idx.y + block_dim.y * thread_idx.z)
    return found


def warp_id() -> Scalar:
    """The warp's number in its block: `thread_rank() // 32`."""
    found: Scalar = thread_rank() // 32
    return found
