"""A kernel before code generation: its instructions, what their names stand for, its basic blocks."""
