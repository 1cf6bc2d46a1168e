"""SM100's operations on random tiles are CuTe's, character by character: cute_sm100_record.txt."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from lanewise.atoms import (
    find_tmem_tensor_col_offset,
    make_tiled_mma,
    make_tmem_copy,
    make_tmem_warp_partitioner,
    partition_shape_A,
    partition_shape_B,
)
from lanewise.layout import Layout, Tensor
from lanewise.layout.int_tuple import spell
from lanewise.layout.reading import read_layout


def cases() -> Iterator[list[tuple[str, str]]]:
    """The lines of every case of the record, each as its first word and the rest."""
    found: list[list[tuple[str, str]]] = []
    for line in (Path(__file__).parent / "cute_sm100_record.txt").read_text().splitlines():
        first, _, rest = line.partition(" ")
        if first == "case":
            found.append([])
        if first != "#":
            found[-1].append((first, rest))
    yield from found


RECORD = list(cases())


def plain(what: object) -> str:
    return re.sub(r"\s", "", what if isinstance(what, str) else repr(what))


class Case:
    """What lanewise says of a case, asked in the order of its lines."""

    def __init__(self, made_from: str) -> None:
        name, tile, block, order, _ = made_from.split(" ; ")
        self.m, self.n, self.k = map(int, tile.split())
        self.mma = make_tiled_mma(name)
        self.slice = self.mma.get_slice(int(block))
        stride = (self.n, 1) if order == "row" else (1, self.m)
        self.part = self.slice.partition_C(Tensor(0, Layout((self.m, self.n), stride)))
        self.acc: Any = self.mma.make_fragment_C(self.part)
        self.smem: dict[str, Any] = {}
        self.copy: Any = None
        self.thread: Any = None

    def say(self, what: str, text: str) -> Any:
        """Return what lanewise has for a line; None for lines that say what comes next."""
        if what in ("copy", "warp"):
            name, _, thread = text.partition(" ; ")
            self.copy = (
                make_tmem_warp_partitioner(self.acc) if what == "warp" else make_tmem_copy(name, self.acc)
            )
            self.thread = self.copy.get_slice(int(thread or name))
            self.loads = "LOAD" in name
            return None
        if what.startswith("smem"):
            self.smem[what[-1]] = read_layout(text)
            return None
        if what.startswith("fragment") and what[-1] in self.smem:
            return getattr(self.mma, f"make_{what}")(Tensor(0, self.smem[what[-1]])).layout
        return type(self)._said[what](self)

    def _side(self, tensor: Any, tmem: bool) -> Any:
        if hasattr(self.thread, "partition"):
            return self.thread.partition(tensor)
        return self.thread.partition_S(tensor) if tmem == self.loads else self.thread.partition_D(tensor)

    _said: ClassVar[dict[str, Callable[[Any], Any]]] = {
        "thr_layout_vmnk": lambda self: self.mma.thr_layout_vmnk,
        "LayoutA_TV": lambda self: self.mma.LayoutA_TV,
        "LayoutB_TV": lambda self: self.mma.LayoutB_TV,
        "LayoutC_TV": lambda self: self.mma.LayoutC_TV,
        "partition_C": lambda self: self.part.layout,
        "fragment_A": lambda self: self.mma.make_fragment_A(
            Tensor(0, Layout(partition_shape_A(self.mma, (self.m, self.k))))
        ),
        "fragment_C": lambda self: self.acc,
        "columns": lambda self: find_tmem_tensor_col_offset(self.acc),
        "partition_shape_A": lambda self: spell(partition_shape_A(self.mma, (self.m, self.k))),
        "partition_shape_B": lambda self: spell(partition_shape_B(self.mma, (self.n, self.k))),
        "TiledLayout_TV": lambda self: self.copy.TiledLayout_TV,
        "Tiler_MN": lambda self: spell(self.copy.Tiler_MN),
        "tmem": lambda self: self._side(self.acc, True),
        "other": lambda self: self._side(self.part, False).layout,
        "shape": lambda self: spell(self._side(self.part, False).shape),
    }


@pytest.mark.parametrize("lines", RECORD, ids=lambda lines: lines[0][1].replace(" ", ""))
def test_random_tiles_are_cutes(lines: list[tuple[str, str]]) -> None:
    case = Case(lines[0][1])
    for what, text in lines[1:]:
        said = case.say(what, text)
        if said is not None:
            assert plain(said) == plain(text), what
