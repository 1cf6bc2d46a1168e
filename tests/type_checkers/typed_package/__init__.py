"""A package that uses lanewise, as a user under `mypy --strict` or pyright would write it."""
