"""Special registers: which thread, lane, warp and block this is, as i32 values known not to be negative.

The names of all special registers stand here, too, so that no other register is given one of them.
"""

from typing import TYPE_CHECKING, Any, NoReturn

from lanewise.lang.trace.builder import current
from lanewise.lang.trace.scalar import Scalar
from lanewise.lang.trace.types import i32

#: The names of all special registers, without the `%`.
SPECIAL_REGISTERS = frozenset((
    "tid", "ntid", "laneid", "warpid", "nwarpid", "ctaid", "nctaid", "smid", "nsmid", "gridid", "clock",
    "clock64", "clock_hi", "pm0", "pm1", "pm2", "pm3", "globaltimer", "globaltimer_lo", "globaltimer_hi",
    "lanemask_eq", "lanemask_lt", "lanemask_le", "lanemask_ge", "lanemask_gt", "dynamic_smem_size",
    "total_smem_size", "aggr_smem_size", "is_explicit_cluster", "clusterid", "nclusterid", "cluster_ctaid",
    "cluster_nctaid", "cluster_ctarank", "cluster_nctarank", "reserved_smem_offset_begin",
    "reserved_smem_offset_end", "reserved_smem_offset_cap", "current_graph_exec",
))  # fmt: skip


def read_special_register(name: str, hint: str) -> Scalar:
    """Return a special register's value, read once at the beginning of the kernel."""
    builder = current()
    with builder.at_entry():
        register = builder.define("mov.u32", "b32", f"%{name}", hint=hint)
    return Scalar(i32, register, nonnegative=True)


class Dim3:
    """Three special registers, one for each dimension: `.x`, `.y` and `.z`."""

    def __init__(self, register: str, what: str) -> None:
        self._register, self.__doc__ = register, what

    @property
    def x(self) -> Scalar:
        """The value along the first dimension."""
        return read_special_register(f"{self._register}.x", f"{self._register}_x")

    @property
    def y(self) -> Scalar:
        """The value along the second dimension."""
        return read_special_register(f"{self._register}.y", f"{self._register}_y")

    @property
    def z(self) -> Scalar:
        """The value along the third dimension."""
        return read_special_register(f"{self._register}.z", f"{self._register}_z")

    def complain(self, *_: object) -> NoReturn:
        """Raise the error that one of the three has to be taken."""
        raise current().error(f"{self.__doc__} have three parts: take .x, .y or .z of them")

    if not TYPE_CHECKING:  # a checker knows x, y and z

        def __getattr__(self, name: str) -> NoReturn:
            raise AttributeError(f"{self.__doc__} have .x, .y and .z, and no .{name}", name=name, obj=None)

    __call__ = __getitem__ = complain

    def __iter__(self) -> Any:
        return iter((self.x, self.y, self.z))

    def __repr__(self) -> str:
        return f"<{self.__doc__}>"


thread_idx = Dim3("tid", "the thread's coordinates in its block")
block_idx = Dim3("ctaid", "the block's coordinates in the grid")
block_dim = Dim3("ntid", "the threads of a block")
grid_dim = Dim3("nctaid", "the blocks of the grid")


def lane_id() -> Scalar:
    """Return the lane: the thread's number in its warp, 0 to 31."""
    return read_special_register("laneid", "lane")


def thread_rank() -> Scalar:
    """Return the thread's number in its block: x + y·dim_x + z·dim_x·dim_y."""
    rank: Scalar = thread_idx.x + block_dim.x * (thread_idx.y + block_dim.y * thread_idx.z)
    return rank


def warp_id() -> Scalar:
    """Return the warp's number in its block: `thread_rank() // 32`."""
    warp: Scalar = thread_rank() // 32
    return warp
