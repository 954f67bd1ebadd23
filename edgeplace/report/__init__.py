"""Facts as tables for people."""
