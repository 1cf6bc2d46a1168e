"""A kernel before machine code exists: its instructions, what their names stand for, its basic blocks."""
