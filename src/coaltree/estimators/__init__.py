"""scikit-learn estimators: they store, validate, call and assign."""
