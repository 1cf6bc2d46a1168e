"""Instructions that the machine does not run, and why: said before a launch, with the line."""

from __future__ import annotations

_CLUSTER = "it reaches into other blocks of a cluster; a block is alone in its cluster here"
_TEXTURE = "there are no textures and surfaces"
_BULK = "bulk copies (TMA) come later"

#: By opcode, or by opcode and a modifier.
_REASONS = {
    "wgmma": "instructions of warpgroups come later",
    "tcgen05": "tensor memory comes later",
    "tensormap": _BULK,
    "clusterlaunchcontrol": _CLUSTER,
    "multimem": "there is one device, and no multicast memory",
    "tex": _TEXTURE,
    "tld4": _TEXTURE,
    "txq": _TEXTURE,
    "suld": _TEXTURE,
    "sust": _TEXTURE,
    "sured": _TEXTURE,
    "suq": _TEXTURE,
    "istypep": _TEXTURE,
    "barrier.cluster": _CLUSTER,
    "st.async": _CLUSTER,
    "red.async": _CLUSTER,
    "st.bulk": _BULK,
    "cp.bulk": _BULK,
    "cp.reduce": _BULK,
    "fma.oob": "the NaN that stands for a place out of bounds is not documented",
    "shfl": "without .sync it is withdrawn since PTX 6.4",
    "vote": "without .sync it is withdrawn since PTX 6.4",
}
_SYNCHRONOUS = ("shfl", "vote")


def reason(opcode: str, modifiers: tuple[str, ...]) -> str:
    """Why an instruction is refused; nothing if it is not.

    >>> reason("wgmma", ("fence", "sync", "aligned"))
    'instructions of warpgroups come later'
    >>> reason("cp", ("async", "ca", "shared", "global"))
    ''
    """
    for modifier in modifiers:
        found = _REASONS.get(f"{opcode}.{modifier}")
        if found:
            return found
    if opcode in _SYNCHRONOUS and "sync" in modifiers:
        return ""
    return _REASONS.get(opcode, "")
