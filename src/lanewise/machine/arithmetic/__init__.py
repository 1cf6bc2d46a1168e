"""Lowerings of the instructions that each lane computes alone."""
