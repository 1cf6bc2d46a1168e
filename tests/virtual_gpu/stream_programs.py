"""A kernel that reads one range of words and writes another, and a driver's program around it."""

import ctypes

from lanewise.virtual_gpu import VirtualGPU

#: Adds `count` words at `source` to as many at `target`; with `overwrites` it writes them without a read.
ADD = """
.version 8.0
.target sm_80
.address_size 64
.visible .entry add(.param .u64 target, .param .u64 source, .param .u32 count, .param .u32 overwrites) {
    .reg .b64 %rd<6>; .reg .b32 %r<8>; .reg .pred %p<3>;
    mov.u32 %r0, %ctaid.x; mov.u32 %r1, %ntid.x; mov.u32 %r2, %tid.x;
    mad.lo.u32 %r3, %r0, %r1, %r2;
    ld.param.u32 %r4, [count];
    setp.ge.u32 %p0, %r3, %r4;
    @%p0 bra DONE;
    ld.param.u64 %rd0, [target]; ld.param.u64 %rd1, [source]; ld.param.u32 %r7, [overwrites];
    mul.wide.u32 %rd2, %r3, 4;
    add.u64 %rd3, %rd0, %rd2; add.u64 %rd4, %rd1, %rd2;
    mov.u32 %r5, 7;
    setp.eq.u64 %p1, %rd1, 0;
    @%p1 bra WRITE;
    ld.global.u32 %r5, [%rd4];
WRITE:
    setp.ne.u32 %p2, %r7, 0;
    @%p2 bra STORE;
    ld.global.u32 %r6, [%rd3];
    add.u32 %r5, %r5, %r6;
STORE:
    st.global.u32 [%rd3], %r5;
DONE:
    ret;
}
"""
WORD = 4


class Program:
    """What a program with streams does, by the driver of a virtual GPU; sizes are in words."""

    def __init__(self, gpu: VirtualGPU) -> None:
        self.driver = gpu.driver
        self._kept: list[object] = []
        self.function = self.driver.cuModuleGetFunction(self.driver.load(ADD), "add")

    def arguments(self, target: int, source: int, count: int, overwrites: bool = False) -> int:
        """Return the address of the arguments of a launch."""
        values = (
            ctypes.c_uint64(target),
            ctypes.c_uint64(source),
            ctypes.c_uint32(count),
            ctypes.c_uint32(overwrites),
        )
        pointers = (ctypes.c_void_p * len(values))(*(ctypes.addressof(each) for each in values))
        self._kept.append((values, pointers))
        return ctypes.addressof(pointers)

    def add(self, target: int, source: int, count: int, stream: int = 0, *, overwrites: bool = False) -> None:
        """Launch the kernel on a stream."""
        self.launch(self.arguments(target, source, count, overwrites), count, stream)

    def launch(self, arguments: int, count: int, stream: int = 0) -> None:
        """Launch the kernel with arguments for some words."""
        self.driver.cuLaunchKernel(self.function, 1 + count // 32, 1, 1, 32, 1, 1, 0, stream, arguments, 0)
