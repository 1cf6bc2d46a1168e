"""What an instruction does and how archs run it, in words without a picture."""

from lanewise.isa import Instruction


def does(instruction: Instruction) -> str:
    """Return in words what an instruction does.

    >>> from lanewise.isa import instruction
    >>> does(instruction("movmatrix.sync.aligned.m8n8.trans.b16"))
    'transposes a matrix that the registers of a warp hold'
    """
    matrix = instruction.matrix.upper()
    space = f"{instruction.space} memory" if instruction.space else "memory"
    stride = "with a stride" if instruction.stride else "rows one after the other"
    count = f"{instruction.num} {'matrix' if instruction.num == 1 else 'matrices'}"
    turned = ", transposed" if instruction.trans else ""
    match instruction.family:
        case "ldmatrix":
            return f"loads {count} from shared memory into the registers of a warp{turned}"
        case "stmatrix":
            return f"stores {count} from the registers of a warp to shared memory{turned}"
        case "movmatrix":
            return "transposes a matrix that the registers of a warp hold"
        case "wmma.load":
            return f"loads {matrix} from {space} into a fragment, {stride}"
        case "wmma.store":
            return f"stores {matrix} from a fragment to {space}, {stride}"
    sparse = ", A structured sparse (half of it, packed)" if instruction.sparse else ""
    scaled = ", A and B block-scaled" if instruction.scale_type else ""
    four = ", four products at once, one for each quad pair" if instruction.products > 1 else ""
    source = {"registers": ", A in registers, B in shared memory", "descriptor": ", A and B in shared memory"}
    formula = "D = A·B + D" if instruction.a_source else "D = A·B + C"
    return f"{formula}{sparse}{scaled}{four}{source.get(instruction.a_source, '')}"


def runs_of(instruction: Instruction, archs: tuple[str, ...]) -> list[tuple[tuple[str, ...], str, str]]:
    """Return (archs, how they run it, how far the computed bits can be trusted), those that agree together.

    >>> from lanewise.isa import instruction
    >>> runs_of(instruction("movmatrix.sync.aligned.m8n8.trans.b16"), ("sm_75", "sm_80"))
    [(('sm_75', 'sm_80'), 'native: 1 MOVM', '')]
    """
    runs: dict[tuple[str, str], list[str]] = {}
    for name in archs:
        fidelity = instruction.fidelity(name) if instruction.multiplies else ""
        runs.setdefault((str(instruction.lowering(name)), fidelity), []).append(name)
    return [(tuple(names), *same) for same, names in runs.items()]
