"""Which arrays in shared memory the accesses of a launch were made to, and which layouts may be proposed."""

from functools import cached_property

from lanewise.machine.analysis.pointer_provenance import shared_variables
from lanewise.machine.checker.cost.bank_proposals import Observed, Usage, proposals
from lanewise.machine.checker.cost.launch_costs import AccessCost, LaunchCosts
from lanewise.machine.checker.cost.shared_arrays import SharedArray, shared_arrays
from lanewise.machine.checker.findings import Proposal
from lanewise.machine.checker.records import SiteRow
from lanewise.machine.checker.site_table import by_async_proxy, first_access_row
from lanewise.machine.program.instruction_record import Size
from lanewise.machine.program.memory_accesses import watched_accesses
from lanewise.machine.program.operands import Symbol
from lanewise.machine.program.ops import Op


class ArrayLayouts:
    """The arrays of one launch, with what was observed of each; a proposal is made once for an array."""

    def __init__(self, costs: LaunchCosts) -> None:
        self.costs, self.program = costs, costs.kernel.program
        self._made: dict[SharedArray, tuple[Proposal, ...]] = {}

    def proposals_for(self, access: AccessCost) -> tuple[Proposal, ...]:
        """Return layouts with fewer conflicts for the array that an access was made to; none if unsure.

        A kernel of the language that computes with pointers into the array gets none: a layout counts for
        its indices alone.
        """
        array = self._array(access)
        if array is None or array.by_pointers:
            return ()
        if array not in self._made:
            usage = self._usage(array)
            self._made[array] = proposals(usage) if usage is not None else ()
        return self._made[array]

    def why_none(self, access: AccessCost) -> str:
        """Return why no layout is proposed for the array of an access, if its pointers are the reason."""
        array = self._array(access)
        if array is None or not array.by_pointers:
            return ""
        return (
            f"no layout is proposed for {array.name}: the kernel computes with pointers into it, and only "
            f"indices, as in {array.name}[…], follow a layout"
        )

    def _array(self, access: AccessCost) -> SharedArray | None:
        """Return the array that an access was made to; None if unsure.

        The asynchronous proxy reads and writes whole tiles with swizzles of its own, and does not say which:
        in a kernel with such instructions nothing is proposed.
        """
        if access.samples is None or any(by_async_proxy(op) for op in self.program.sites):
            return None
        low, high = _extent(access)
        return next((array for array in self.arrays if array.holds(low, high)), None)

    @cached_property
    def arrays(self) -> list[SharedArray]:
        """The arrays that the kernel declares."""
        accessed: dict[Symbol, set[str]] = {}
        for variable, _, op_type, _ in self._static:
            accessed.setdefault(variable, set()).add(op_type)
        for access in self.costs.accesses:
            if access.samples is not None:
                low, high = _extent(access)
                for variable in shared_variables(self.program):
                    if variable.address < high and low < variable.address + variable.size:
                        accessed.setdefault(variable, set()).add(_type(access.op, access.located.size))
        return shared_arrays(self.program, accessed)

    @cached_property
    def _static(self) -> list[tuple[Symbol, int, str, bool]]:
        """For accesses to variables, also those that were not made: variable, bytes, type, if in strides."""
        variables = {
            (shared_variable.address, shared_variable.address + shared_variable.size): shared_variable
            for shared_variable in shared_variables(self.program)
        }
        table = self.costs.kernel.watched
        accesses = []
        for op in self.program.sites:
            for row, located in enumerate(watched_accesses(op), first_access_row(op)):
                bounds = tuple(int(table[row, field // 8]) for field in (SiteRow.lowest, SiteRow.highest))
                variable = variables.get((bounds[0], bounds[1]))
                if variable is not None:
                    strided = located.access.size is Size.TILE_LINE
                    size = 16 if strided else located.size
                    accesses.append((variable, size, _type(op, size), strided))
        return accesses

    def _usage(self, array: SharedArray) -> Usage | None:
        """Return how an array is used; None if an access reaches beyond it, or is not known to be in it."""
        observed, sizes, strided = [], [array.element_bytes], False
        for variable, size, _, in_strides in self._static:
            if variable.address <= array.start < variable.address + max(variable.size, 1):
                sizes.append(size)
                strided |= in_strides
        for access in self.costs.accesses:
            if access.samples is None:
                continue
            low, high = _extent(access)
            if high <= array.start or array.start + array.size <= low:
                continue
            if not array.holds(low, high):
                return None
            strided |= access.located.access.size is Size.TILE_LINE
            sizes.append(16 if access.samples.by_rows else access.samples.size)
            if access.located.access.asynchronous and access.located.size == 16:
                continue  # it goes past L1, and its conflicts are not counted
            observed.append(Observed(access.samples, access.requests / len(access.samples.offsets)))
        return Usage(array, observed, max(sizes), strided, self.program.shared_bytes)


def _type(op: Op, size: int) -> str:
    """Return the type of the elements that an access of some bytes has."""
    return op.types[-1] if op.types else f"b{8 * size}"


def _extent(access: AccessCost) -> tuple[int, int]:
    """Return the first byte that sampled requests touch, and the one after the last."""
    samples = access.samples
    assert samples is not None
    offsets = samples.offsets[samples.lanes]
    return int(offsets.min()), int(offsets.max()) + samples.size
