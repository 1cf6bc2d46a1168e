"""Tensor copies that an H200 was seen to make."""

import json
from pathlib import Path
from typing import Any

from tensor_copy_cases import Case

RECORD = json.loads(
    (Path(__file__).parents[2] / "benchmarks" / "results" / "h200_tensor_copies.json").read_text()
)


def recorded() -> list[tuple[Case, dict[str, Any]]]:
    """Return the copies of the record, with what came of them."""
    columns = RECORD["columns"]
    return [
        (Case.from_json(dict(zip(columns, row["case"], strict=True))), row) for row in RECORD["tensor_copies"]
    ]
