"""Lowerings of warp instructions that access memory or exchange values between lanes, and of calls."""
