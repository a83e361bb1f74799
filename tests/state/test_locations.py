"""How one place is called by Spark, by Arrow and by us."""

from __future__ import annotations

from pathlib import Path

import pytest

from evenflow.state import below, filesystem_at, home_of, spark_path

OPTIONS = "?endpoint_override=localhost:9000&scheme=http&region=us-east-1"


@pytest.mark.parametrize(
    ("location", "sparks", "arrows"),
    [
        (f"s3://bucket/c{OPTIONS}", "s3://bucket/c/spark", "bucket/c/spark"),
        (f"s3://bucket/c/{OPTIONS}", "s3://bucket/c/spark", "bucket/c/spark"),
        (f"s3a://bucket/c//{OPTIONS}", "s3a://bucket/c/spark", "bucket/c/spark"),
        (f"s3://key:se%2Fcret@bucket/a b%20c{OPTIONS}", "s3://bucket/a b%20c/spark", "bucket/a b%20c/spark"),
        (f"s3://bucket{OPTIONS}", "s3://bucket/spark", "bucket/spark"),
        (
            "abfs://box:key@account.dfs.core.windows.net/c",
            "abfs://box@account.dfs.core.windows.net/c/spark",
            "box/c/spark",
        ),
        ("file:///tmp/c?x=1", "file:///tmp/c/spark", "/tmp/c/spark"),  # noqa: S108 - nothing is written
        ("file:/tmp/c/", "file:/tmp/c/spark", "/tmp/c/spark"),  # noqa: S108
        ("file:///tmp/a%20b é#?x=1", "file:///tmp/a%20b é#/spark", "/tmp/a%20b é#/spark"),  # noqa: S108
        ("/tmp/is it?/c", "file:/tmp/is it?/c/spark", "/tmp/is it?/c/spark"),  # noqa: S108
    ],
)
def test_one_place_for_spark_and_arrow(location: str, sparks: str, arrows: str) -> None:
    """Spark knows nothing of Arrow's options, and takes each letter of a path as it is."""
    inside = below(location, "spark")
    assert spark_path(inside) == sparks
    assert filesystem_at(inside, "a test's place")[1] == arrows


def test_options_stay_at_the_end() -> None:
    assert below(f"s3://bucket/c/{OPTIONS}", "a/b") == f"s3://bucket/c/a/b{OPTIONS}"
    assert home_of(f"s3://bucket/c/{OPTIONS}") == f"s3://bucket/c/evenflow{OPTIONS}"


def test_a_path_is_local_and_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert spark_path("c") == f"file:{tmp_path}/c"
