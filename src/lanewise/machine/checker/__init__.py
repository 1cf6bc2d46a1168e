"""A launch under watch: shadow memory, vector clocks, counters, findings."""
