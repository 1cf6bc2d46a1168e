"""Running the command line inside the test process: what it returned and what it said."""

from collections.abc import Callable
from typing import NamedTuple

import pytest

from lanewise.cli import main


class Said(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def lanewise(capsys: pytest.CaptureFixture[str]) -> Callable[..., Said]:
    def run(*arguments: object) -> Said:
        capsys.readouterr()
        code = main([str(argument) for argument in arguments])
        return Said(code, *capsys.readouterr())

    return run


@pytest.fixture
def answered(lanewise: Callable[..., Said]) -> Callable[..., str]:
    """The answer of a command that must succeed without a word of complaint."""

    def run(*arguments: object) -> str:
        said = lanewise(*arguments)
        assert (said.code, said.err) == (0, ""), said
        return said.out

    return run
