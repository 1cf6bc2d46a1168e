"""ptxas as an oracle: run it, and read all of its complaints."""

import re
import subprocess
import tempfile
from functools import cache
from pathlib import Path

from lanewise.ptx.tools.toolkit import find_tools

_COMPLAINT = re.compile(r"ptxas (?:(?P<place>\S+), line (?P<line>\d+); )?(?:error|fatal) *: (?P<message>.*)")
_SUMMARY = "Ptx assembly aborted due to errors"


@cache
def find_ptxas() -> str | None:
    """The path of ptxas, or None where there is none."""
    found = find_tools("ptxas")
    return str(found[0].path) if found else None


def assemble(ptx: str, arch: str) -> list[tuple[int, str]]:
    """Assemble a PTX module for an arch: (line, message) of every error, none if it was accepted.

    Line 0 stands for an error that ptxas does not place in the module. There is no back end for Volta any
    more: a module with `.target sm_70` or `sm_72` is assembled for sm_75, and still checked for its target.
    """
    ptxas = find_ptxas()
    assert ptxas is not None, "ptxas is missing: pip install 'nvidia-cuda-nvcc==13.0.*'"
    back_end = "sm_75" if arch in ("sm_70", "sm_72") else arch
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "probe.ptx")
        source.write_text(ptx)
        # Without optimisation acceptance is the same, and long modules take a fraction of the time.
        command = [ptxas, f"-arch={back_end}", "-O0", str(source), "-o", str(Path(folder, "probe.cubin"))]
        done = subprocess.run(command, capture_output=True, text=True)
    complaints = [
        (int(match["line"] or 0) if str(source) == match["place"] else 0, match["message"])
        for match in _COMPLAINT.finditer(done.stdout + done.stderr)
        if match["message"] != _SUMMARY
    ]
    assert (done.returncode == 0) == (not complaints), done.stdout + done.stderr
    return complaints
