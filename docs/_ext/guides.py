"""The order in which the guides are read."""

GUIDES = ("start", "clustering", "dendrogram", "missing", "mixed", "curves", "regression", "records")


class _GuideOrder:
    """Sort example files as GUIDES does; a file that is not listed there is an error."""

    def __repr__(self):
        return "guide_order"  # Sphinx compares configurations by their text

    def __call__(self, filename):
        return GUIDES.index(filename.removesuffix(".py"))


guide_order = _GuideOrder()
