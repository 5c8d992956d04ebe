"""The tables and figures of Henao and Lucas, run again: `python -m papers.henao_lucas NAME`."""
