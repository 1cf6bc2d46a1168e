"""Products by mma.sync, on every arch that has it: plans of family "warp"."""
