"""A kernel compiled for checked launches: the code of a plain launch, with the checker's steps in it."""

from dataclasses import replace
from functools import cached_property, partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from lanewise.machine import abi
from lanewise.machine.abi import WarpFrame
from lanewise.machine.analysis import definite_assignment
from lanewise.machine.analysis.address_parameters import (
    AccessSizes,
    AddressParameters,
    access_sizes,
    written_parameters,
)
from lanewise.machine.analysis.block_independence import dependence_between_blocks
from lanewise.machine.analysis.control_registers import control_registers, time_decides
from lanewise.machine.analysis.definite_assignment import has_folded_values, is_folded
from lanewise.machine.analysis.observed_loads import ObservedLoads
from lanewise.machine.analysis.pointer_provenance import AddressSources
from lanewise.machine.analysis.reaching_definitions import ReachingDefinitions
from lanewise.machine.analysis.value_uses import Use, ValueUses
from lanewise.machine.analysis.warpgroup_registers import WarpgroupPlan, warpgroup_plan
from lanewise.machine.checker.counters import SiteCounters
from lanewise.machine.checker.records import MOST_ELEMENTS
from lanewise.machine.checker.site_table import (
    first_access_row,
    is_followed,
    is_warp_barrier,
    watched_sites,
)
from lanewise.machine.checker.steps import CheckerSteps
from lanewise.machine.compile.compiled import Compiled, ReadyKernels
from lanewise.machine.program.memory_accesses import LocatedAccess, watched_accesses
from lanewise.machine.program.operands import registers_in
from lanewise.machine.program.ops import Op
from lanewise.machine.program.source_lines import source_line
from lanewise.ptx import Function, Module


class WatchedAccess(NamedTuple):
    """An access of an instruction that is watched, and its row in the site table."""

    op: Op
    located: LocatedAccess
    row: int


class CheckedKernel(Compiled):
    """A compiled kernel with what a check knows of it before it runs, computed once for all launches."""

    def __init__(self, module: Module, function: Function, arch: str, follows_lanes: bool = False) -> None:
        self._folded = is_folded if has_folded_values(module) else None
        self.follows_lanes = follows_lanes
        variant = "checked" if self._folded is None else "checked, with folded values"
        variant += ", with lanes of tensor memory" if follows_lanes else ""
        super().__init__(module, function, arch, variant, self._instrumentation)
        self._observing: dict[tuple[int, int, int], dict[int, npt.NDArray[np.uint32]]] = {}

    def _instrumentation(self) -> CheckerSteps:
        has_warp_barriers = any(is_warp_barrier(op) for op in self.program.sites)
        answers = {
            register
            for op in self.program.sites
            if op.record.decodes_answer
            for register in registers_in(op.operands[1])
        }
        return CheckerSteps(self.plan, self.warpgroups, self.follows_async, has_warp_barriers, answers)

    @cached_property
    def plan(self) -> definite_assignment.Plan:
        """The registers that a check tracks because a path may leave them without a value."""
        plan = definite_assignment.plan(self.blocks, self._folded, self.follows_lanes)
        for key, made in plan.assignments.items():
            op = self.program.sites[key[0]]
            if made.loaded is not None and not op.record.touches_tensor_memory:
                # What is only copied may be padding of a structure, if the rest of the load has values.
                copied = (self.value_uses.of(op, element) is not Use.COMPUTED for element in made.loaded)
                loaded = zip(copied, made.loaded, strict=True)
                elements = tuple(MOST_ELEMENTS if whole else element for whole, element in loaded)
                plan.assignments[key] = replace(made, loaded=elements)
        return plan

    @cached_property
    def loads_lanes(self) -> bool:
        """Whether the kernel loads lanes of tensor memory, of which some may have no value."""
        return any(definite_assignment.loads_lanes(op) for op in self.program.sites)

    @cached_property
    def value_uses(self) -> ValueUses:
        """What becomes of the values that loads give."""
        return ValueUses(self.program)

    @cached_property
    def warpgroups(self) -> WarpgroupPlan:
        """The registers of wgmma, and what touches them."""
        return warpgroup_plan(self.blocks)

    @cached_property
    def deciding_bytes(self) -> npt.NDArray[np.int64] | None:
        """The offsets in a frame of bytes that decide on what a warp does next; None if all may do so."""
        registers = control_registers(self.program)
        if registers is None:
            return None
        bytes_of = [
            range(register.offset, register.offset + max(register.bits // 8, 1) * abi.LANES)
            for register in registers
        ]
        carry = range(WarpFrame.carry, WarpFrame.carry + abi.LANES)
        return np.array(sorted({offset for offsets in (carry, *bytes_of) for offset in offsets}), np.int64)

    @cached_property
    def time_decides(self) -> bool:
        """Whether a clock may decide on what the kernel does."""
        return time_decides(self.program)

    @cached_property
    def watched(self) -> npt.NDArray[np.int64]:
        """The site table before anything ran; every launch begins with a copy of it."""
        rows, self._stored_elements = watched_sites(
            self.program, self.address_sources, self.value_uses, self.arch
        )
        return rows

    @cached_property
    def address_sources(self) -> AddressSources:
        """The shared variables that addresses were computed from."""
        return AddressSources(self._definitions)

    @cached_property
    def _definitions(self) -> ReachingDefinitions:
        """The definitions of registers that reach each instruction."""
        return ReachingDefinitions(self.blocks)

    @cached_property
    def access_sizes(self) -> AccessSizes:
        """The smallest accesses, which decide how many bytes a cell of shadow memory stands for."""
        return access_sizes(self.program)

    @cached_property
    def accesses(self) -> list[WatchedAccess]:
        """All accesses that are watched, in the order of the program."""
        return [
            WatchedAccess(op, located, row)
            for op in self.program.sites
            for row, located in enumerate(watched_accesses(op), first_access_row(op))
        ]

    @cached_property
    def counters(self) -> SiteCounters:
        """Return what each instruction counts for."""
        return SiteCounters(self.blocks, self.program.sites, self.arch)

    @cached_property
    def sources(self) -> list[str | None]:
        """Return the line of the source that each instruction came from."""
        lines = (None if op.loc is None else source_line(self.module, op.loc) for op in self.program.sites)
        return list(lines)

    def observing_lanes(self, block: tuple[int, int, int]) -> dict[int, npt.NDArray[np.uint32]]:
        """Return by rows of loads the lanes of each warp that can observe the value, where not all can."""
        if block not in self._observing:
            masks = self._observed_loads.lanes(block)
            self._observing[block] = {first_access_row(op): mask for op, mask in masks.items()}
        return self._observing[block]

    @cached_property
    def _observed_loads(self) -> ObservedLoads:
        return ObservedLoads(self.program, self.blocks)

    @cached_property
    def written_parameters(self) -> frozenset[int] | None:
        """The offsets of parameters whose memory may be written; None if any memory may be."""
        return written_parameters(self.program)

    @cached_property
    def address_parameters(self) -> dict[int, frozenset[int]]:
        """For rows of accesses to global memory: the parameters that the address is made from, by offset."""
        sites, plain = self.program.sites, self._address_parameters.plain
        return {
            first_access_row(sites[site]) + number: parameters for (site, number), parameters in plain.items()
        }

    @cached_property
    def async_parameters(self) -> dict[tuple[int, int], frozenset[int]]:
        """The same for asynchronous operations, by their site and the number of the access."""
        return self._address_parameters.asynchronous

    @cached_property
    def _address_parameters(self) -> AddressParameters:
        return AddressParameters(self.program, self._definitions)

    @cached_property
    def follows_async(self) -> bool:
        """Whether the kernel has asynchronous operations or mbarriers, moves registers, or is of clusters."""
        return any(is_followed(op) for op in self.program.sites)

    @cached_property
    def blocks_are_independent(self) -> bool:
        """Whether nothing shows that blocks depend on one another while they run, or take over others."""
        if any(op.record.takes_over_clusters for op in self.program.sites):
            return False
        return dependence_between_blocks(self.program) is None


#: The kernel for an arch, as checked launches run it; and if it loads lanes of tensor memory without a value.
checked = ReadyKernels(CheckedKernel)
checked_by_lanes = ReadyKernels(partial(CheckedKernel, follows_lanes=True))
