"""Compile the samples of this folder again: python make.py (needs nvcc 13.0 and a host compiler).

The PTX kept here was made so, with nvcc 13.0.88: each source for the target and with the options named below.
"""

import subprocess
from pathlib import Path

HERE = Path(__file__).parent
SAMPLES = {
    "tensor_sm80": ("tensor.cu", ["-arch=sm_80"]),
    "tensor_sm90_lineinfo": ("tensor.cu", ["-arch=sm_90", "-lineinfo"]),
    "language_sm75": ("language.cu", ["-arch=sm_75"]),
    "language_sm90_rdc": ("language.cu", ["-arch=sm_90", "-rdc=true"]),
    "language_sm80_debug": ("language.cu", ["-arch=sm_80", "-G"]),
    "hopper_sm90a": ("hopper.cu", ["-arch=sm_90a"]),
    "images_sm80": ("images.cu", ["-arch=sm_80"]),
}

for name, (source, options) in SAMPLES.items():
    command = ["nvcc", "-ptx", *options, source, "-o", f"{name}.ptx"]
    print(" ".join(command))
    subprocess.run(command, cwd=HERE, check=True)
