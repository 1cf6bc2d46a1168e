"""Words for what lies at an address: an element of an argument, of an array in shared memory, a variable."""

from lanewise.machine import abi
from lanewise.machine.tensor_memory_records import LANE_BYTES
from lanewise.traces.arrays import source_name
from lanewise.traces.history import space_of
from lanewise.traces.recording import Recording

#: What tensor memory is called: an element has a lane and a column.
TENSOR_NAME = "tmem"


class Descriptions:
    """Describes addresses of a recorded launch."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording

    def memory(self, address: int) -> str:
        """Return what lies at a generic address, such as "A[3, 8]"; else its state space and address."""
        space = space_of(address)
        if space in ("global", "const"):
            return self._global(address)
        if space == "shared":
            return self._shared((address - abi.SHARED_WINDOW) & abi.OFFSET_MASK)
        if space == "tensor":
            lane, byte = divmod(address - abi.TENSOR_WINDOW, LANE_BYTES)
            return f"{TENSOR_NAME}[{lane}, {byte // 4}]"
        window = abi.LOCAL_WINDOW if space == "local" else abi.PARAM_WINDOW
        return f"{space} {address - window:#x}"

    def _global(self, address: int) -> str:
        for argument in self.recording.arguments:
            index = argument.index_at(address)
            if index is not None:
                return f"{argument.name}{list(index)}"
        for name, symbol in self.recording.program.globals.items():
            if symbol.space != "shared" and 0 <= address - symbol.address < max(symbol.size, 1):
                return f"{name}+{address - symbol.address}"
        return f"global {address:#x}"

    def _shared(self, offset: int) -> str:
        arrays = self.recording.shared_arrays
        for array in arrays.all():
            index = array.index_at(offset)
            if index is not None:
                return f"{array.name}{list(index)}"
        for name, symbol in arrays.variables.items():
            if 0 <= offset - symbol.address < symbol.size:
                within = offset - symbol.address
                return f"{source_name(name)}+{within}" if within else source_name(name)
        return f"shared {offset:#x}"
