"""Parsed PTX: operands, statements, functions and modules, each of which writes itself as PTX again."""
