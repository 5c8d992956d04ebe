"""Published experiments, run again."""
