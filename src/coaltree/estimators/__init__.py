"""scikit-learn faces of the library: estimators store, validate, call and assign."""
