"""The Debug Adapter Protocol: what editors speak with a debugger, as JSON messages with a header each."""
