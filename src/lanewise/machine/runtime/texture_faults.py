"""Messages for faults at textures and surfaces: which argument it was, and where the access lay."""

from lanewise.machine.abi import BlockRecord, FaultKind
from lanewise.machine.program.instruction_record import Role
from lanewise.machine.program.operands import MemoryOperand, Register, ResolvedOperand, TexelOperand
from lanewise.machine.program.ops import Op
from lanewise.machine.runtime.state import BlockState, LaunchState
from lanewise.machine.textures.objects import geometry_of, named_coordinates
from lanewise.ptx import Immediate
from lanewise.ptx.textures import Surface


def handle_operand(op: Op) -> int | None:
    """Return the number of the operand that is a texture or surface; None if there is none."""
    return next((n for n in range(len(op.operands)) if op.record.role(n) is Role.HANDLE), None)


def title_of(launch: LaunchState, state: BlockState, op: Op) -> str:
    """Return the argument whose texture or surface an instruction accesses; empty if its handle is wrong."""
    texture = launch.textures.find(_handle(state, op)) if launch.textures is not None else None
    return f"argument {texture[0]}" if texture else ""


def describe_texture_fault(launch: LaunchState, state: BlockState, op: Op) -> tuple[str, str]:
    """Return the first line of a fault's message, and the line that gives the reason."""
    kind, size = FaultKind(state[BlockRecord.fault_kind]), state[BlockRecord.fault_size]
    handle = _handle(state, op)
    wanted = "surface" if op.opcode.startswith("su") else "texture"
    texture = launch.textures.find(handle) if launch.textures is not None else None
    if kind is FaultKind.BAD_TEXTURE:
        head = f"{op.opcode} through a handle that is not a {wanted} of this launch"
        if texture is None:
            return head, f"the handle is {handle:#x}; pass lw.{wanted}(array) for the kernel's parameter"
        title, image = texture
        given = "surface" if isinstance(image, Surface) else "texture"
        if given != wanted:
            return head, f"argument {title} is a {given}; pass lw.{wanted}(array)"
        return (
            f"{op.opcode} is for another geometry than that of the {wanted}",
            f"argument {title} is a {image.geometry} {wanted}, read as {geometry_of(op).title}",
        )
    assert texture is not None
    title, image = texture
    verb = "write" if op.record.writes_surface else "read"
    head = f"surface {verb} of {size} bytes out of bounds"
    if kind is FaultKind.MISALIGNED:
        head = f"misaligned surface {verb} of {size} bytes"
    number = handle_operand(op)
    assert number is not None
    places = [
        f"{'byte ' if name == 'x' else ''}{name} = {_value(state, operand)}"
        for name, operand in named_coordinates(op, number).items()
    ]
    width, height, depth = image.size
    sizes = [f"rows of {width * image.texel_bytes} bytes"]
    sizes += [f"{height} rows"] if image.dimensions > 1 else []
    sizes += [f"{depth} planes"] if image.dimensions > 2 else []
    sizes += [f"{image.layers} layers"] if image.layered else []
    return head, f"{', '.join(places)}; argument {title} has {', '.join(sizes)}"


def _handle(state: BlockState, op: Op) -> int:
    """Return the handle that the faulting lane has."""
    number = handle_operand(op)
    assert number is not None
    operand = op.operands[number]
    if isinstance(operand, TexelOperand):
        return _value(state, operand.handle)
    assert isinstance(operand, MemoryOperand) and isinstance(operand.base, Register)
    return _value(state, operand.base)


def _value(state: BlockState, operand: ResolvedOperand) -> int:
    """Return the value of an operand in the faulting lane; coordinates are signed."""
    if isinstance(operand, Immediate):
        return int(operand.value)
    if not isinstance(operand, Register):
        return 0
    warp, lane = state[BlockRecord.fault_warp], state[BlockRecord.fault_lane]
    word = int(state.lanes(warp, operand.offset, operand.bits)[lane])
    return word - (word >> 31 << 32) if operand.bits == 32 else word
