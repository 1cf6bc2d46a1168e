"""Instructions of a warp that touch memory or exchange values between lanes, and calls."""
