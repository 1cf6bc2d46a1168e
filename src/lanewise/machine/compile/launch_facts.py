"""What a launch has to know of a resolved program; kernels that are kept on disk do without this file."""

from __future__ import annotations

from lanewise.machine.analysis.control_registers import reads_clock
from lanewise.machine.launch_info import LaunchInfo
from lanewise.machine.program.basic_blocks import BasicBlock, entry_block
from lanewise.machine.program.operands import Symbol
from lanewise.machine.program.ops import Program
from lanewise.machine.tensor_core.mma_library import TENSOR_PRODUCT, product_key, product_sites, tensor_sites


def launch_info(program: Program, blocks: list[BasicBlock], arch: str) -> LaunchInfo:
    """Return the facts that are kept on disk beside a kernel's machine code."""
    body = program.body(program.entry.name)
    return LaunchInfo(
        frame_bytes=program.frame_bytes,
        local_bytes=program.local_bytes,
        shared_base=program.shared_base,
        shared_bytes=program.shared_bytes,
        dynamic_offset=program.dynamic_offset,
        parameter_bytes=program.parameter_bytes,
        parameters=tuple(each.address for each in body.parameters if isinstance(each, Symbol)),
        variables=tuple(
            (name, each.space, each.address, each.size) for name, each in program.globals.items()
        ),
        uses_heap=program.uses_heap,
        uses_grid=program.uses_grid,
        uses_reserved_memory=program.uses_reserved_memory,
        uses_tensor_memory=any(op.record.touches_tensor_memory for op in program.sites),
        reads_clock=any(reads_clock(op) for op in program.sites),
        takes_over_clusters=any(op.record.takes_over_clusters for op in program.sites),
        sites=len(program.sites),
        entry=entry_block(program, blocks),
        lines=tuple(block.line for block in blocks),
        products=(
            *(
                (instruction.text, product_key(instruction, arch), tuple(sites))
                for instruction, sites in product_sites(program, arch).items()
            ),
            *((text, TENSOR_PRODUCT, sites) for text, sites in tensor_sites(program).items()),
        ),
    )
