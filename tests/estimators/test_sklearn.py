"""scikit-learn's own checks of the estimators."""

from sklearn.utils.estimator_checks import parametrize_with_checks

from coaltree import CoalescentClustering


@parametrize_with_checks([CoalescentClustering(n_draws=2, warmup=1)])
def test_check_estimator(estimator, check):
    check(estimator)
