"""scikit-learn's own checks of the estimators."""

import inspect

from sklearn.utils.estimator_checks import parametrize_with_checks

from coaltree.estimators.clustering import CoalescentClustering
from coaltree.posterior.learning import learn_posterior


def expected_failures(estimator):
    # Only the learner decides whether a table may have gaps; the one that keeps checkpoints does take them.
    if "checkpoint" in inspect.signature(learn_posterior).parameters:
        return {}
    return {"check_estimators_pickle": "the check has NaN in its table"}


@parametrize_with_checks(
    [CoalescentClustering(n_iter=2, burn_in=1, n_particles=3)], expected_failed_checks=expected_failures
)
def test_check_estimator(estimator, check):
    check(estimator)
