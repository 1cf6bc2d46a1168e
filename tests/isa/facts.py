"""What was recorded about matrix instructions: ptxas 13.0 on 23 targets, and wmma fragments on an H200."""

import gzip
import json
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

_DATA = Path(__file__).parent.parent / "data"


@cache
def recorded(name: str) -> Any:
    """A data file of the tests."""
    return json.loads(gzip.decompress((_DATA / f"{name}.json.gz").read_bytes()))


class Fact(NamedTuple):
    """One form as recorded: its text, the choice of operands that the text leaves open, and the record."""

    text: str
    a_source: str | None
    n: int
    record: dict[str, Any]

    @property
    def archs(self) -> tuple[str, ...]:
        """The targets that accept it."""
        return tuple(recorded("ptxas_13_0")["arch_sets"][self.record["archs"]])

    @property
    def choice(self) -> dict[str, Any]:
        """What `instruction` has to be told beside the text."""
        return {"a_source": self.a_source} if self.a_source else {}

    def registers(self) -> dict[str, int]:
        """Registers a lane, by operand (R: the one that a load or store has)."""
        return {
            name: count if isinstance(count, int) else self.n // count["N over"]
            for name, count in self.record["registers"].items()
        }

    def fragments(self) -> dict[str, Any]:
        """The recorded tables, by operand."""
        found = {}
        for name, which in self.record.get("fragments", {}).items():
            number = which.get(str(self.n)) if isinstance(which, dict) else which
            if number is not None:
                found[name] = recorded("ptxas_13_0")["tables"][number]
        return found


@cache
def facts(documented: bool = True) -> tuple[Fact, ...]:
    """Every recorded form, wgmma once for every N."""
    found = []
    for record in recorded("ptxas_13_0")["forms"]:
        if record["documented"] == documented:
            for n in record.get("N", [0]):
                text = record["text"].replace("{N}", str(n))
                found.append(Fact(text, record.get("a_source"), n, record))
    return tuple(found)
