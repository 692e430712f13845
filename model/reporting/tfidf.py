"""A baseline that knows no word order: TF-IDF of words and logistic regression (scikit-learn)."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

MAX_ITERATIONS = 1000


def predict(train: Sequence[str], labels: Sequence[int], *others: Sequence[str]) -> tuple[npt.NDArray[np.int64], ...]:
    """Fit on `train` (texts and their labels) and predict a label for every text of each of `others`.

    Deterministic: one thread, a solver without randomness. Words are lowercased; counts enter by 1 + log(count).
    """
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from threadpoolctl import threadpool_limits

    vectorizer = TfidfVectorizer(sublinear_tf=True, token_pattern=r"(?u)\b\w+\b")
    with threadpool_limits(1):
        features = vectorizer.fit_transform(train)
        model = LogisticRegression(C=10.0, max_iter=MAX_ITERATIONS, solver="lbfgs")
        model.fit(features, np.asarray(labels))
        return tuple(
            model.predict(vectorizer.transform(texts)).astype(np.int64) if len(texts) else np.zeros(0, np.int64)
            for texts in others
        )
