"""Launches under watch: shadow memory, vector clocks, counters and the report of findings."""
