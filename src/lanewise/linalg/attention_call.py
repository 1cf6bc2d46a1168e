"""A call of `lw.attention` as the CPU and GPUs compute it: views of four axes, sizes, the scale."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from lanewise.formats import Format
from lanewise.linalg.kernels.attention.sizes import Sizes
from lanewise.linalg.operands import View


class AttentionCall(NamedTuple):
    """A call of `lw.attention` whose arguments fit together; views have four axes."""

    q: View
    k: View
    v: View
    out: View
    lse: View | None
    sizes: Sizes
    causal: bool
    scale: float

    @property
    def dtype(self) -> Format:
        """The type of queries, keys, values and results."""
        return self.q.format

    @property
    def views(self) -> tuple[View, View, View, View]:
        """Queries, keys, values and results."""
        return self.q, self.k, self.v, self.out


#: What repeats a call on torch's tensors on a GPU, by the kinds of its tensors, and its options.
KNOWN: dict[tuple[object, ...], Callable[[object, object, object], object]] = {}
