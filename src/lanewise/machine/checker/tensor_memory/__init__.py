"""What a check knows of tensor memory: its records, the steps before instructions, mends of faults."""
