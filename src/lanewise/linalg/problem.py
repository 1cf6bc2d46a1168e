"""A product of matrices as planner and kernels see it: sizes, types, where elements lie, what is fused.

Arrays are not in it: two calls with the same problem run the same plan. `rules.py` makes a problem of arrays,
`planning/planner.py` a plan of a problem, and the families make launches of a plan.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from lanewise.formats import Format


@dataclass(frozen=True)
class Operand:
    """A matrix (or a batch of matrices) in memory, contiguous along one of its two axes.

    Of A, M by K, and B, K by N, `k_major` says whether neighbours along K are neighbours in memory; of the
    result, M by N, it says whether neighbours along N are (`k_major` false: its columns are contiguous).
    """

    dtype: Format
    k_major: bool
    #: Elements from one row (or column) to the next, and from one matrix of the batch to the next (0: shared)
    leading: int
    batch_stride: int = 0
    #: Bytes that the address and all strides are multiples of, at most 16; TMA needs 16.
    alignment: int = 16
    #: Elements from one to the next along the contiguous axis: 1, except in views with steps, which no tensor
    #: map describes; a plan copies them first.
    inner: int = 1

    @property
    def strides(self) -> tuple[int, int]:
        """Elements from one to the next along the first axis and along the second (of Bᵀ, N by K)."""
        return (self.leading, self.inner) if self.k_major else (self.inner, self.leading)

    @property
    def tma(self) -> bool:
        """Whether a tensor map can describe it."""
        return self.alignment == 16 and self.inner == 1 and self.leading > 0 and self.batch_stride >= 0


@dataclass(frozen=True)
class Epilogue:
    """What is done to sums before they are stored: scale · (act(alpha·scales·sum + bias) + beta·residual)

    In this order: the scales of A and B and alpha are multiplied in, the bias is added, the activation
    taken, the residual added (times beta), the output scale multiplied in, and the result is rounded once.
    """

    #: Whether alpha is given (a number at launch) or 1; the same for beta, which scales the residual.
    alpha: bool = False
    beta: bool = False
    #: None, "row" (one number for each column of the result: a row is added to every row) or "column".
    bias: str | None = None
    bias_dtype: Format | None = None
    #: None, "relu", "gelu_tanh", "gelu_erf", "silu", "sigmoid", or the name of a user's function.
    activation: str | None = None
    residual: Operand | None = None
    #: None, "tensor" (a number), "row" (one for each row of A, or column of B), or "block" (of A one for each
    #: row and 128 of K, of B one for each 128 of K by 128 of N; `Problem.promote` is 128 then).
    scale_a: str | None = None
    scale_b: str | None = None
    #: Elements of the scales' arrays from one to the next: matrix of the batch, row of A (or column of B; of
    #: blocks, block of columns), block of K.
    scale_a_strides: tuple[int, int, int] = (0, 0, 0)
    scale_b_strides: tuple[int, int, int] = (0, 0, 0)
    scale_out: bool = False
    #: A user's own device function `f(value, row, column) -> value`, after all of it; compared by identity.
    function: object | None = None
    #: None, or which index of a batch that was folded into one matrix that function gets modulo
    #: `Problem.folded_rows`: "row" or, of the transpose, "column".
    folded: str | None = None

    @property
    def is_long(self) -> bool:
        """Whether it takes many instructions."""
        return self.activation is not None or self.function is not None

    @property
    def compiled_in(self) -> Epilogue:
        """The epilogue without what is an argument of a kernel: strides, and where a residual lies."""
        residual = None if self.residual is None else Operand(self.residual.dtype, True, 0)
        none = (0, 0, 0)
        return replace(self, residual=residual, scale_a_strides=none, scale_b_strides=none)


@dataclass(frozen=True)
class Problem:
    """out[l] = epilogue(A[l] · B[l]) for l in 0 … batch-1; A is M by K, B is K by N."""

    m: int
    n: int
    k: int
    a: Operand
    b: Operand
    out: Operand
    #: The format of the sums: f32, f16, f64 or s32.
    sums: Format
    batch: int = 1
    epilogue: Epilogue = Epilogue()
    #: "" (the types' own product), "tf32" (f32 arrays, rounded to tf32) or "f32" (f32 by split products).
    precision: str = ""
    #: None, or the block of K after which e4m3 products are scaled and promoted to f32: 128.
    promote: int | None = None
    #: With `promote`, how many rows of A and columns of B share a scale (0: none); `scale_a` is then
    #: (M / rows, K / 128) and `scale_b` (K / 128, N / columns).
    scale_blocks: tuple[int, int] = (1, 128)
    batch_invariant: bool = False
    #: 0, or how many matrices of B (experts) there are, each for some rows of A and of the result: those from
    #: `starts` to `ends`, two arrays of i32 of the launch. `batch` is 1 then.
    experts: int = 0
    #: Whether the rows of each expert begin where those of the one before it end: there are no `starts` then,
    #: and the kernel looks at `ends`, which nobody has seen; and whether rows after the last become zeros.
    consecutive: bool = False
    clears_rest: bool = False
    #: Whether B is 2:4 sparse: half of its elements, and metadata that says where they stood.
    sparse: bool = False
    #: Whether this is the transpose of the product that was asked for, as a kernel computes it.
    is_transpose: bool = False
    #: 0, or the rows of each matrix of a batch that is computed as one long matrix: a user's function gets
    #: rows of its own matrix. It is an argument of the kernel, and not compiled in.
    folded_rows: int = 0
    #: "", or the block-scaled format of A and B: "mxfp8", "mxfp4" or "nvfp4".
    block_format: str = ""
    #: With a block-scaled format, the steps of the scale factors of A and of B in elements: from row to row
    #: (of B: from column to column), and along K; -1 if they are in NVIDIA's 128×4 order.
    factor_steps: tuple[tuple[int, int], tuple[int, int]] = ((0, 0), (0, 0))
