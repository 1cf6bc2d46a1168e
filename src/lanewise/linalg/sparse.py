"""Products with a b that `lw.sparsify` made: what such calls must fulfil beside the rules of all products."""

from __future__ import annotations

from dataclasses import replace

from lanewise.errors import LanewiseError
from lanewise.formats import s32
from lanewise.linalg.operands import View, view_of
from lanewise.linalg.options import Options
from lanewise.linalg.plan import Plan
from lanewise.linalg.planning.gpus import planned_arch
from lanewise.linalg.rules import Request, request_of
from lanewise.linalg.sparsify import SparseMatrix


def sparse_request(a: object, b: SparseMatrix, options: Options) -> Request:
    """Return what a call with a sparse b asks for; an error if it breaks a rule."""
    for name in ("accumulate", "precision", "plan"):
        if getattr(options, name) is not None:
            raise LanewiseError(f"products with a sparse b take no {name}=")
    left = view_of(a, "a")
    sparse_plan_of(options)
    device = None if left.device is None else b.on_device(left)
    kept = View(
        (b.k // 2, b.shape[1]), (1, b.leading), b.format, 0 if device is None else device.values_address,
        left.library, left.device, None if device is None else device.values,
    )  # fmt: skip
    request = request_of(a, b, options, kept=kept)
    if request.problem is None:
        return request
    if request.problem.promote is not None:
        raise LanewiseError(
            "products with a sparse b take one scale, or scales of rows and columns, but no scales of blocks"
        )
    if device is not None:
        words = len(device.metadata) // (s32.word_bits // 8)
        request.metadata = View(
            (words,), (1,), s32, device.metadata_address, left.library, left.device, device.metadata
        )
    request.problem = replace(request.problem, sparse=True)
    return request


def sparse_plan_of(options: Options) -> Plan:
    """Return a plan that says in which order the CPU sums a product with a sparse b: one chain along K."""
    arch = planned_arch("sm_90a" if options.arch is None else options.arch)
    if arch != "sm_90a":
        raise LanewiseError(f"products with a sparse b are planned for sm_90a only, not for {arch}")
    return Plan("sparse", arch, (128, 128, 64), 1)
