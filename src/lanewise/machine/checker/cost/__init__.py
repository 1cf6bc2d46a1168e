"""Verdicts on the cost of a checked launch: what wastes time, where, how much, and what would mend it."""
