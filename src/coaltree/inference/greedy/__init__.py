"""One tree, merge by merge, without sampling."""
