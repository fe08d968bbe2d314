"""Settings of Spark: the user's come first; and masters that nobody reaches."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from lbd.cli import main
from lbd.errors import UsageError
from lbd.learn.spark import DEFAULTS, started, unset

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("defaults", "words", "own"),
    [
        ("", "", set()),
        (
            "# spark.log.level WARN\n\nspark.driver.memory 8g\n spark.ui.enabled=true",
            "",
            {"spark.driver.memory", "spark.ui.enabled"},
        ),
        (
            "spark.driver.memory: 8g",
            "--conf spark.ui.enabled=true pyspark-shell",
            {"spark.driver.memory", "spark.ui.enabled"},
        ),
        (None, "--driver-memory 9g pyspark-shell", {"spark.driver.memory"}),
    ],
    ids=["none", "in a file", "and in the environment", "without a file"],
)
def test_what_the_user_has_set_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, defaults: str | None, words: str, own: set[str]
):
    """In spark-defaults.conf, in any of its forms, or in PYSPARK_SUBMIT_ARGS: lbd sets only the rest."""
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", words)
    if defaults is not None:
        (tmp_path / "spark-defaults.conf").write_text(defaults)

    assert unset(DEFAULTS).keys() == DEFAULTS.keys() - own


@pytest.mark.parametrize("setting", ["spark.driver.memory", "driver.memory=8g", "=8g"])
def test_what_is_no_setting_is_an_error(setting: str):
    """Before Java is started."""
    done = CliRunner().invoke(main, ["calibrate", "--conf", setting])

    assert done.exit_code == 2
    assert done.stderr == f"Error: --conf {setting}: is no setting of Spark; wanted spark.NAME=VALUE\n"


@pytest.mark.parametrize(
    ("master", "message"),
    [
        ("spark://127.0.0.1:{port}", "no Spark master can be reached there: Connection refused"),
        ("spark://127.0.0.1:{port},127.0.0.1:{port}", "no Spark master can be reached there: Connection refused"),
        ("spark://127.0.0.1:port", "no Spark master can be reached there: Port could not be cast"),
        ("sc://127.0.0.1:{port};user_id=me", "no Spark Connect server can be reached there: Connection refused"),
        ("nonsense", r"no such form of a master; wanted local\[\*\], spark://"),
    ],
)
def test_a_master_that_nobody_reaches_is_an_error_at_once(master: str, message: str):
    """One line that names it, before Spark is started, which would try for a minute."""
    pytest.importorskip("pyspark")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        named = master.format(port=free.getsockname()[1])
        with pytest.raises(UsageError, match=f"^--master {named}: .*{message}"), started("nowhere", named):
            pytest.fail("there is no master")
