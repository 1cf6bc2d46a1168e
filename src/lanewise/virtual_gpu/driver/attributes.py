"""Attributes of a device and of a function, by the numbers of cuda.h, computed from the table of GPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lanewise.isa.multiprocessor import (
    LARGEST_BLOCK,
    LARGEST_GRID,
    MOST_REGISTERS,
    MOST_THREADS,
    REGISTERS,
    STATIC_SHARED_BYTES,
    WARP,
)

if TYPE_CHECKING:
    from lanewise.virtual_gpu.devices import Device

#: Bytes of constant memory of a module.
CONSTANT_BYTES = 65536


def device_attributes(device: Device) -> dict[int, int]:
    """Return the attributes of a device (CUdevice_attribute) by number.

    >>> from lanewise.virtual_gpu.devices import find_device
    >>> attributes = device_attributes(find_device("H100"))
    >>> attributes[16], attributes[75], attributes[97]
    (132, 9, 232448)
    """
    unit = device.multiprocessor
    major, minor = device.capability
    hopper = int(major >= 9)
    return {
        1: MOST_THREADS,  # threads of a block
        2: LARGEST_BLOCK[0], 3: LARGEST_BLOCK[1], 4: LARGEST_BLOCK[2],
        5: LARGEST_GRID[0], 6: LARGEST_GRID[1], 7: LARGEST_GRID[2],
        8: STATIC_SHARED_BYTES,  # shared memory of a block without the opt-in
        9: CONSTANT_BYTES,
        10: WARP,
        11: 2**31 - 1,  # the pitch of a copy
        12: REGISTERS,  # registers of a block
        13: device.clock_khz,
        14: 512, 30: 512, 51: 32,  # alignment of textures, of surfaces, of the pitch of textures
        21: 131072, 22: 131072, 23: 65536, 24: 16384, 25: 16384, 26: 16384,  # textures of 1, 2, 3 dimensions
        27: 32768, 28: 32768, 29: 2048, 42: 32768, 43: 2048,  # textures with layers
        52: 32768, 53: 32768, 54: 2046,  # textures of cube maps
        69: 2**28, 70: 131072, 71: 65000, 72: 2097120,  # textures of linear memory
        55: 32768, 56: 131072, 57: 65536, 58: 16384, 59: 16384, 60: 16384,  # surfaces
        61: 32768, 62: 2048, 63: 32768, 64: 32768, 65: 2048,  # surfaces with layers
        66: 32768, 67: 32768, 68: 2046,  # surfaces of cube maps
        15: 1,  # copies overlap with kernels
        16: device.multiprocessors,
        17: 0,  # no limit of time on kernels
        18: 0,  # not integrated
        19: 1,  # host memory can be mapped
        20: 0,  # compute mode: default
        31: 1,  # kernels run at the same time
        32: 0,  # no ECC
        33: 1, 34: 0, 50: 0,  # PCI bus, device and domain
        35: 0,  # TCC driver
        36: device.memory_clock_khz,
        37: device.bus_bits,
        38: device.l2_bytes,
        39: unit.warps * WARP,  # threads of a multiprocessor
        40: 2,  # copy engines
        41: 1,  # unified addressing
        75: major, 76: minor,
        78: 1,  # stream priorities
        79: 1, 80: 1,  # caching in L1
        81: unit.shared_bytes,  # shared memory of a multiprocessor
        82: REGISTERS,  # registers of a multiprocessor
        83: 1,  # managed memory
        84: 0, 85: 0,  # one GPU on one board
        87: 2 if major < 10 else 64,  # single to double precision
        88: 0,  # kernels cannot access host memory that no call registered
        89: 1,  # managed memory is used by both sides at once
        91: 1,  # host pointers of registered memory
        95: 1,  # cooperative launches
        97: device.shared_bytes,  # shared memory of a block with the opt-in
        98: 1,  # flushing of remote writes
        99: 1, 100: 0, 101: 1,  # host memory registered, page tables shared, direct managed access
        102: 1,  # virtual memory management
        106: unit.blocks,  # blocks of a multiprocessor
        107: int(major >= 8),  # compressible memory, which a program cannot tell from other memory
        108: device.l2_bytes * 5 // 8 if major >= 8 else 0,  # L2 that can be kept for persisting accesses
        109: 2**27 - 4096 if major >= 8 else 0,  # the window of an access policy
        111: unit.reserved_bytes,  # reserved shared memory of a block
        115: 1,  # memory pools
        120: hopper,  # clusters
        127: hopper,  # tensor maps
    }  # fmt: skip


def function_attributes(shared_bytes: int, constant_bytes: int, registers: int, arch: int) -> dict[int, int]:
    """Return the attributes of a function (CUfunction_attribute) by number, before any is set."""
    return {
        0: MOST_THREADS,
        1: shared_bytes,
        2: constant_bytes,
        3: 0,  # local memory
        4: min(registers, MOST_REGISTERS),
        5: arch,  # version of the PTX
        6: arch,  # version of the binary
        7: 0,
        8: STATIC_SHARED_BYTES - shared_bytes,  # dynamic shared memory
        9: -1,  # preferred shared memory
        14: 0,  # non-portable clusters
    }
