"""What is written on a command line, read: options, instructions, layouts, arrays and kernel arguments."""
