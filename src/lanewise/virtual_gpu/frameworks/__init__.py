"""What frameworks need beyond the driver: hooks that are installed when a program imports them."""
