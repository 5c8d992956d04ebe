"""Where rows that are not in a tree would join it, and how probable they are."""
