"""The record of what a device showed, as JSON: written to the path in LANEWISE_RECORD, if that is set."""

import datetime
import json
import os
from pathlib import Path
from typing import Any

from gpu.device import Device
from gpu.execution import Outcome

#: Every input is drawn from this seed and the instruction's text; another one gives other inputs.
SEED = int(os.environ.get("LANEWISE_SEED", "20250115"))


class Record:
    """What was compared and what differed, instruction by instruction."""

    def __init__(self) -> None:
        self.entries: dict[str, dict[str, Any]] = {}

    def add(self, check: str, name: str, outcome: Outcome) -> None:
        """Note an outcome under a check's name; in a JSON record each family shows [compared, differing]."""
        entry: dict[str, Any] = {"vectors": outcome.vectors, "differing": sum(outcome.differing.values())}
        entry["inputs"] = {name: [count, outcome.differing[name]] for name, count in outcome.compared.items()}
        if outcome.first is not None:
            entry["first"] = outcome.first
        self.entries.setdefault(check, {})[name] = entry

    def failed(self, check: str, name: str, error: Exception) -> None:
        """Note that there was nothing to compare with."""
        self.entries.setdefault(check, {})[name] = {"error": f"{type(error).__name__}: {error}"}

    def write(self, path: Path, device: Device) -> None:
        """The record as JSON, totals first."""
        totals = {
            check: {
                "instructions": len(entries),
                "vectors": sum(entry.get("vectors", 0) for entry in entries.values()),
                "differing": sum(entry.get("differing", 0) for entry in entries.values()),
                "instructions that differ": sum(
                    bool(entry.get("differing", 0)) for entry in entries.values()
                ),
                "instructions not computed": sum("error" in entry for entry in entries.values()),
            }
            for check, entries in self.entries.items()
        }
        made = {
            **device.describe(),
            "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "seed": SEED,
        }
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = json.dumps(
            {"made": made, "totals": totals, "checks": self.entries}, indent=1, ensure_ascii=False
        )
        path.write_text(lines + "\n")
