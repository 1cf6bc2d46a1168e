"""Names of instructions as people say them, and how common the forms are that they may mean."""
