"""What a terminal shows and hears: answers as tables or data, progress, and Ctrl-C."""
