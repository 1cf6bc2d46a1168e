"""Tensors in registers: fragments under CuTe's shapes, changed in place; slices share their registers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from weakref import WeakSet

from lanewise.formats import Format, f32, f64, s32
from lanewise.lang.arrays import Array
from lanewise.lang.builder import current
from lanewise.lang.convert import bitcast
from lanewise.lang.slots import put_together, taken_apart
from lanewise.lang.tiles import View, as_coordinate, sliced, view
from lanewise.lang.tiles_steps import UNKNOWN, written
from lanewise.lang.trees import Node
from lanewise.lang.types import u32
from lanewise.lang.values import Scalar, Traced, describe, literal, public, scalar
from lanewise.layout import Layout, ScaledBasis, flatten, size
from lanewise.layout import make_fragment_like as fragment_layout
from lanewise.layout.coordinates import has_none


def word_dtype(dtype: Format) -> Format:
    """What one register of elements is: f32, f64, i32, or u32 with one or several elements in it."""
    return dtype if dtype in (f32, f64, s32) else u32


class Words(list[Scalar]):
    """Registers, and the tensors that share them."""

    def __init__(self, words: list[Scalar]) -> None:
        super().__init__(words)
        self.tensors: WeakSet[Registers] = WeakSet()


class Registers(Node):
    """Elements in registers through a layout: `r[v, m, k]`, `r[None, m, None]`, `r.to(lw.f16)`, `r.map(f)`.

    Coordinates are Python integers: registers have no addresses.
    """

    __slots__ = ("__weakref__", "_dtype", "layout", "offset", "words")
    mutable = True

    def __init__(self, dtype: Format, layout: Layout, words: list[Scalar], offset: int = 0) -> None:
        self._dtype, self.layout, self.offset = dtype, layout, offset
        self.words = words if isinstance(words, Words) else Words(words)
        self.words.tensors.add(self)

    def parts(self) -> list[Any]:
        return list(self.words)

    def with_parts(self, parts: list[Any], fresh: bool = False) -> Registers:
        if fresh:
            if len(self.words.tensors) > 1:
                raise current().error(
                    f"{self} gets a new value in a loop or branch while slices or retiled views of it exist, "
                    "which would keep the old one: change it in place, as lw.copy(value, fragment) does, or "
                    "give the new value another name"
                )
            return Registers(self.dtype, self.layout, list(parts), self.offset)
        self.words[:] = parts
        return self

    def same_kind(self, other: Any) -> bool:
        return isinstance(other, Registers) and (self.dtype, self.layout, self.offset, len(self.words)) == (
            other.dtype, other.layout, other.offset, len(other.words),
        )  # fmt: skip

    @property
    def dtype(self) -> Format:
        """The dtype of the elements."""
        return self._dtype

    @property
    def shape(self) -> Any:
        """The shape of the coordinates."""
        return self.layout.shape

    @property
    def space(self) -> str:
        """Not memory."""
        return "registers"

    @property
    def slots(self) -> int:
        """Elements in one register."""
        return max(1, 32 // self.dtype.bits)

    def named(self, name: str) -> None:
        """Let the registers have a Python name."""
        if self.offset == 0 and size(self.layout) == len(self.words) * self.slots:
            for number, each in enumerate(self.words):
                each.named(f"{name}{number}")

    def place(self, number: int) -> int:
        """The element that the number-th coordinate leads to."""
        return self.offset + int(self.layout(number))

    def get(self, place: int) -> Scalar:
        """An element by its number among all in these registers."""
        held = self.words[place // self.slots]
        if self.slots == 1:
            return held if held.dtype == self.dtype else Scalar(self.dtype, held.in_register)
        return taken_apart(held.in_register, self.dtype, self.dtype.bits)[place % self.slots]

    def word(self, places: list[int]) -> Scalar:
        """One register with some elements side by side: the very register, if they lie so."""
        first = places[0]
        if first % self.slots == 0 and places == list(range(first, first + self.slots)):
            return self.words[first // self.slots]
        return Scalar(u32, put_together([self.get(each) for each in places], self.dtype.bits))

    def put(self, places: list[int], values: list[Scalar]) -> None:
        """Set elements."""
        slots = self.slots
        new: dict[int, dict[int, Scalar]] = {}
        for place, value in zip(places, values, strict=True):
            new.setdefault(place // slots, {})[place % slots] = value
        for word, elements in new.items():
            if slots == 1:
                self.words[word] = as_word(elements[0], word_dtype(self.dtype))
                continue
            if len(elements) < slots:
                held = taken_apart(self.words[word].in_register, self.dtype, self.dtype.bits)
                elements = {**dict(enumerate(held)), **elements}
            packed = put_together([elements[slot] for slot in range(slots)], self.dtype.bits)
            self.words[word] = Scalar(u32, packed)

    def put_word(self, places: list[int], word: Scalar) -> None:
        """Set elements from one register that holds them side by side."""
        first = places[0]
        if first % self.slots == 0 and places == list(range(first, first + self.slots)):
            self.words[first // self.slots] = as_word(word, word_dtype(self.dtype))
        else:
            self.put(places, taken_apart(word.in_register, self.dtype, self.dtype.bits))

    def __getitem__(self, coordinate: Any) -> Any:
        crd = self._coordinate(coordinate)
        start = self.offset + int(self.layout(_filled(crd)))
        if not has_none(crd):
            return self.get(start)
        return Registers(self.dtype, sliced(crd, self.layout), self.words, start)

    def __setitem__(self, coordinate: Any, value: Any) -> None:
        crd = self._coordinate(coordinate)
        if has_none(crd):
            part = self[crd]
            for number in range(size(part.layout)):
                part.put([part.place(number)], [scalar(value, self.dtype, f"an element of {self}")])
            return
        place = self.offset + int(self.layout(crd))
        self.put([place], [scalar(value, self.dtype, f"an element of {self}")])

    def _coordinate(self, coordinate: Any) -> Any:
        crd = as_coordinate(coordinate, self.layout)
        if any(isinstance(each, Traced) for each in flatten((crd,))):
            raise current().error(
                "registers have no addresses: the coordinates of a tensor in registers are Python integers"
            )
        try:
            self.layout(_filled(crd))
            inside = _inside(crd, self.shape)
        except (LookupError, TypeError, ValueError):
            inside = False
        if not inside:
            raise current().error(f"coordinate {crd!r} is outside shape {written(self.shape)}")
        return crd

    def __len__(self) -> int:
        return size(self.layout)

    def __iter__(self) -> Iterator[Scalar]:
        return (self.get(self.place(number)) for number in range(size(self.layout)))

    def map(self, f: Callable[[Any], Any]) -> Registers:
        """New registers of the same shape, f applied to each element; f may change the dtype."""
        values = [f(each) for each in self]
        for each in values:
            if not isinstance(each, Scalar) or each.dtype != values[0].dtype:
                raise current().error(f".map: f must give values of one dtype, not {describe(each)}")
        made = make_registers(values[0].dtype, self.layout)
        made.put([made.place(number) for number in range(len(values))], values)
        return made

    def to(self, dtype: Format) -> Registers:
        """New registers of the same shape, each element converted."""
        return self if dtype == self.dtype else self.map(lambda each: each.to(dtype))

    def __repr__(self) -> str:
        return f"<{self}>"

    def __str__(self) -> str:
        return f"a tensor of {public(self.dtype)} in registers, of shape {written(self.shape)}"


def _filled(crd: Any) -> Any:
    if isinstance(crd, tuple):
        return tuple(map(_filled, crd))
    return 0 if crd is None else crd


def _inside(crd: Any, shape: Any) -> bool:
    if isinstance(crd, tuple):
        return all(_inside(c, s) for c, s in zip(crd, shape, strict=True))
    return crd is None or (isinstance(crd, int) and 0 <= crd < size(shape))


def as_word(value: Scalar, dtype: Format) -> Scalar:
    """A value as a register of a dtype of the same size: its bits."""
    if value.dtype == dtype:
        return value
    if dtype is u32 and value.dtype.bits == 32 and value.dtype is not f32:
        return Scalar(u32, value.in_register)
    return bitcast(value, dtype)


def make_registers(dtype: Format, layout: Layout) -> Registers:
    """Registers of zeros for a shape, in the order of a layout (compact, if it is not)."""
    if any(isinstance(each, ScaledBasis) for each in flatten((layout.stride,))):
        ordered = Layout(layout.shape)
    else:
        ordered = fragment_layout(layout)
    if UNKNOWN in flatten((layout.shape,)):
        raise current().error(
            f"registers for shape {written(layout.shape)}: slice the mode whose extent is known only when "
            "the kernel runs"
        )
    zero = literal(0, word_dtype(dtype))
    count = -(-ordered.cosize() // max(1, 32 // dtype.bits))
    return Registers(dtype, ordered, [zero] * count)


def make_fragment_like(tensor: Any, dtype: Format | None = None) -> Registers:
    """Registers, zero, in the shape of a tensor; of another dtype, if one is given.

    Inside a kernel: `rA = lw.make_fragment_like(tAgA[None, None, None, 0])`.
    """
    if isinstance(tensor, Array):
        tensor = view(tensor, "lw.make_fragment_like")
    if not isinstance(tensor, View | Registers):
        raise current().error(f"lw.make_fragment_like takes a tensor, not {describe(tensor)}")
    return make_registers(dtype or tensor.dtype, tensor.layout)


def clear(tensor: Any) -> None:
    """Set a tensor in registers to zero."""
    fill(tensor, 0)


def fill(tensor: Any, value: Any) -> None:
    """Set every element of a tensor in registers to one value."""
    if not isinstance(tensor, Registers):
        raise current().error(
            f"lw.clear and lw.fill take a tensor in registers, as lw.make_fragment_like makes; not "
            f"{describe(tensor)}"
        )
    slots = tensor.slots
    if slots > 1 and not isinstance(value, Traced) and value == 0:
        one = taken_apart(literal(0, u32).in_register, tensor.dtype, tensor.dtype.bits)
    else:
        one = [scalar(value, tensor.dtype, "lw.fill")] * slots
    places = sorted({tensor.place(number) for number in range(size(tensor.layout))})
    tensor.put(places, [one[place % slots] for place in places])


__all__ = ["Registers", "as_word", "clear", "fill", "make_fragment_like", "make_registers", "word_dtype"]
