"""Faces for scikit-learn."""
