"""scikit-learn's own checks of estimators, on all of ours."""

import numpy as np
from sklearn.utils import Tags
from sklearn.utils.estimator_checks import parametrize_with_checks
from sklearn.utils.validation import check_is_fitted, check_X_y, validate_data

from panther import EmbeddingClassifier, EmbeddingCox, EmbeddingRegressor, EmbeddingScaler, Panther


class RowsAsBags(Panther):
    """`Panther` for the checks, which know only 2-d X: each row becomes a bag of five patches around it."""

    def fit(self, X, y=None):
        return super().fit(self._bags(validate_data(self, X, dtype=np.float64)))

    def transform(self, X):
        check_is_fitted(self)
        return super().transform(self._bags(validate_data(self, X, dtype=np.float64, reset=False)))

    def _bags(self, rows):
        steps = np.random.RandomState(0).normal(scale=0.5, size=(5, rows.shape[1]))
        return [row + steps for row in rows]

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = True
        return tags


class NumbersAsTimes(EmbeddingCox):
    """`EmbeddingCox` for the checks, which know only 1-d y: each number becomes the time of an event."""

    def fit(self, X, y):
        _, y = check_X_y(X, y, y_numeric=True)
        return super().fit(X, np.column_stack([y, np.ones(len(y))]))

    def score(self, X, y):
        return super().score(X, np.column_stack([y, np.ones(len(y))]))


@parametrize_with_checks(
    [
        RowsAsBags(2, n_init=1, max_iter=1),
        EmbeddingScaler(),
        EmbeddingClassifier(),
        EmbeddingRegressor(),
        NumbersAsTimes(),
    ]
)
def test_scikit_learns_checks(estimator, check):
    check(estimator)
