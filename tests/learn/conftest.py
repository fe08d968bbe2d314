"""One Spark session for all tests that need one."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Spark in this process, on one core."""
    pytest.importorskip("pyspark")
    if shutil.which("java") is None:
        pytest.skip("no java on the PATH")
    from lbd.learn.spark import session

    with session("local[1]") as found:
        yield found
