"""The library's own exceptions. Every complaint about input is one of these, and each is a ValueError.

Also what public functions need to complain about plain values: switches, and values as messages show them.
"""

from pathlib import Path
from reprlib import repr


class LanewiseError(ValueError):
    """The error for wrong input; its message says what is wrong, what is allowed and what to do."""


class IllegalInstruction(LanewiseError):
    """The error for an instruction that no GPU has, or that the GPU asked about does not have."""


class InternalError(LanewiseError):
    """A mistake in lanewise itself, not in what it was given: the message says how to report it."""

    def __init__(self, what: str, error: BaseException | None = None) -> None:
        cause = f" ({type(error).__name__}: {error})" if error is not None else ""
        super().__init__(
            f"{what}{cause}\n    This is a mistake in lanewise, not in your kernel. Please report it "
            "with this message, the kernel, and what `lanewise doctor` prints."
        )
        self.what, self.error = what, error

    def __reduce__(self) -> tuple[object, ...]:
        return (type(self), (self.what, self.error))


def is_set(name: str, value: object) -> bool:
    """Return whether a switch is set; raise an error for what is neither true nor false, such as an array.

    >>> is_set("lineinfo", 1)
    True
    """
    if value is True or value is False:
        return value
    try:
        return bool(value)
    except Exception:  # whatever an object raises that is neither
        raise LanewiseError(f"{name} is True or False, not {type(value).__name__} {shown(value)}") from None


def shown(value: object) -> str:
    """Return a value as messages show it, also of an object that cannot be shown.

    >>> shown([1, 2])
    '[1, 2]'
    """
    try:
        return repr(value)
    except Exception:  # whatever an object raises that has no text
        return "(of which no text can be made)"


def install_command(extra: str, package: Path = Path(__file__).parent) -> str:
    """Return the command that installs an extra: from the checkout that the package is in or came from.

    >>> install_command("cuda", Path("site-packages/lanewise"))
    "pip install 'lanewise[cuda]'"
    """
    checkout = package.parents[1] if package.parent.name == "src" else _installed_from(package)
    if checkout is None or not (checkout / "pyproject.toml").is_file():
        return f"pip install 'lanewise[{extra}]'"
    return f"pip install '{'.' if checkout == Path.cwd() else checkout}[{extra}]'"


def _installed_from(package: Path) -> Path | None:
    """Return the folder that pip installed a package from, as pip has noted; None if it was no folder."""
    for file in package.parent.glob(f"{package.name}-*.dist-info/direct_url.json"):
        import json  # wanted for a message alone
        from urllib.request import url2pathname

        kind, _, path = str(json.loads(file.read_text())["url"]).partition("://")
        return Path(url2pathname(path)) if kind == "file" else None
    return None
