"""CoalescentRegression as scikit-learn sees it: a classifier or a regressor, as its family says."""

from sklearn.base import is_classifier, is_regressor
from sklearn.utils.estimator_checks import parametrize_with_checks

from coaltree import CoalescentRegression
from tests.estimators.test_probit import QUICK, expected_failures


@parametrize_with_checks(
    [CoalescentRegression(**QUICK), CoalescentRegression("normal", **QUICK)],
    expected_failed_checks=expected_failures,
)
def test_scikit_learn_conventions(estimator, check):
    check(estimator)


def test_the_family_decides_what_it_is():
    for family in ("logit", ["probit", "logit"]):
        assert is_classifier(CoalescentRegression(family))
        assert hasattr(CoalescentRegression(family), "decision_function")
    for family in ("poisson", "normal", ["probit", "normal"]):
        assert is_regressor(CoalescentRegression(family))
    assert hasattr(CoalescentRegression("poisson"), "predict_proba")
    assert not hasattr(CoalescentRegression("normal"), "predict_proba")
    assert not hasattr(CoalescentRegression("poisson"), "decision_function")
