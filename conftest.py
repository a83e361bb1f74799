"""How tests are dealt out to the processes that run them (`make test`; `pytest` alone runs all in one), and what
Hypothesis may judge by.
"""

from __future__ import annotations

import pytest
from hypothesis import settings

_SHARED = "spark"  # the fixture of the one Spark session

# An example that is slow on a busy machine is no defect: no test here is judged by the clock.
settings.register_profile("evenflow", deadline=None)
# Mutation testing (`make mutants`) runs the tests again and again: few examples, and the same for every mutant.
settings.register_profile("mutants", deadline=None, derandomize=True, max_examples=20, database=None)
settings.load_profile("evenflow")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep the tests of a module together, and all that share the Spark session; what needs Spark comes first.

    Those tests take longest and mostly wait, so the others run beside them.
    """
    for item in items:
        group = "shared session" if _shares_session(item) else item.nodeid.partition("::")[0]
        item.add_marker(pytest.mark.xdist_group(group))
    items.sort(key=lambda item: (not _shares_session(item), item.get_closest_marker("spark") is None))


def _shares_session(item: pytest.Item) -> bool:
    return _SHARED in getattr(item, "fixturenames", ())
