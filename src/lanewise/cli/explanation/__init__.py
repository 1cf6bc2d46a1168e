"""The answers of `lanewise explain`: what an instruction is, and which lane holds which element."""
