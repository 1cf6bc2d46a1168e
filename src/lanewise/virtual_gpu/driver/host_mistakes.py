"""What the host code of a program did wrong, as findings: device memory that it follows, calls refused."""

from __future__ import annotations

import linecache
import threading
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from lanewise.machine.checker.report import Finding


class HostMistakes:
    """The mistakes of host code, each once for each line of the program."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._found: dict[tuple[str, str], Finding] = {}
        #: Whether a report will have them, and whether one of them ended the program.
        self.are_reported = self.stopped = False

    @property
    def findings(self) -> list[Finding]:
        """What was found, in the order in which it was found."""
        return list(self._found.values())

    def add(
        self,
        kind: str,
        message: str,
        mend: str,
        line: str | None,
        address: int | None = None,
        severity: Literal["error", "advice"] = "error",
    ) -> Finding:
        """Note a mistake of a line of the program; return it as a finding."""
        from lanewise.machine.checker.report import Finding

        name, _, number = (line or "").rpartition(":")
        quote = linecache.getline(name, int(number)).strip() if name else ""
        finding = Finding(
            kind,
            message,
            int(number or 0),
            "",
            line,
            address=address,
            severity=severity,
            mend=mend,
            quote=quote,
        )
        with self._lock:
            return self._found.setdefault((kind, line or message), finding)
