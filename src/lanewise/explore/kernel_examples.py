"""The ready examples of the room Kernels: PTX, CUDA C++, and scripts of the kernel language.

Scripts are kept as text beside this file, because they use the library as its users do.
"""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

FOLDER = Path(__file__).with_name("examples")


@dataclass(frozen=True)
class Example:
    """An example: its name in links, what it is, its file, and for PTX and CUDA C++ how it is launched."""

    name: str
    title: str
    about: str
    file: str
    grid: str = ""
    block: str = ""
    arguments: tuple[str, ...] = ()
    arch: str = ""

    @property
    def path(self) -> Path:
        """Where the file lies."""
        return FOLDER / self.file

    @property
    def language(self) -> str:
        """The language of its source: ptx, cuda or python."""
        return {".ptx": "ptx", ".cu": "cuda", ".txt": "python"}[self.path.suffix]

    @property
    def shown_name(self) -> str:
        """The name of the file as the page and the PTX have it."""
        return self.file.removesuffix(".txt")

    @cached_property
    def source(self) -> str:
        """The text of the file."""
        return self.path.read_text(encoding="utf-8")


EXAMPLES = {
    example.name: example
    for example in (
        Example("saxpy", "SAXPY", "y = a x + y in PTX; the last threads have nothing to do", "saxpy.ptx",
                "4", "64", ("2.5", "arange:f32:250", "ones:f32:250", "250"), "sm_80"),
        Example("histogram", "A histogram", "CUDA C++: counted by atomics in shared memory", "histogram.cu",
                "2", "128", ("random:u8:4096", "4096", "zeros:i32:64"), "sm_80"),
        Example("transpose", "Transpose, with conflicts", "lanes read a column, which lies in one bank",
                "transpose.py.txt"),
        Example("transpose-padded", "Transpose, mended", "rows of 33 floats: 32 different banks",
                "transpose_padded.py.txt"),
        Example("hgemm", "HGEMM", "ldmatrix from swizzled shared memory, and mma", "hgemm.py.txt",
                arch="sm_80"),
        Example("pipeline", "A pipeline of cp.async", "copies of two rows are under way while one is used",
                "pipeline.py.txt", arch="sm_80"),
        Example("tma-wgmma", "Hopper: TMA and wgmma", "a tile by TMA, an mbarrier, four warps multiply",
                "tma_wgmma.py.txt"),
        Example("tcgen05", "Blackwell: tensor memory", "one thread multiplies, 128 threads read the sums",
                "tcgen05.py.txt", arch="sm_100a"),
        Example("barrier", "A missing barrier", "a mistake to find: who reads too early?", "barrier.py.txt"),
        Example("swizzle", "A wrong swizzle", "a mistake to find: which rows are exchanged?",
                "swizzle.py.txt"),
        Example("scan", "A lane too few", "a mistake to find: which lane does not add?", "scan.py.txt"),
    )
}  # fmt: skip
