"""No secret that lbd has read leaves the process, in whatever form."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from io import StringIO
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest
import structlog

from lbd import log
from lbd.api.client import Client
from lbd.api.problems import problem
from lbd.api.shapes import json_bytes
from lbd.api.token import TokenFiles
from lbd.cli.render import plain
from lbd.errors import AdminError
from lbd.pulsar.http import Secret
from lbd.redaction import HIDDEN, MOST, redacted, redacted_json, remember
from lbd.store.history_tables import COLUMNS, TableRows
from lbd.store.journal_lines import text

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SECRET = 'k9/"Zx+é\\7 q=='
PAIR = base64.b64encode(f"admin:{SECRET}".encode()).decode()
JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJzdXBlcnVzZXIifQ.s3cr3tSignature"


class TestText:
    @pytest.mark.parametrize(
        "form",
        [
            SECRET,
            quote(SECRET, safe=""),
            json.dumps(SECRET),
            repr(SECRET),
            f"Basic {PAIR}",
            f"Basic {PAIR.rstrip('=')}",
        ],
        ids=["raw", "URL", "JSON", "quoted", "basic authentication", "without padding"],
    )
    def test_every_form_of_a_known_secret(self, form: str) -> None:
        """It is cut out, the words around it stay."""
        remember(SECRET, "admin")
        told = redacted(f"b1 said {form} to us")
        assert told.startswith("b1 said ")
        assert told.endswith(" to us")
        assert HIDDEN in told
        assert not any(part in told for part in ("k9", "Zx", PAIR[:8]))

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            (f"Bearer {JWT}.", f"Bearer {HIDDEN}."),
            ("http://me:hunter2@b1:8080/x and @home", f"http://{HIDDEN}@b1:8080/x and @home"),
            ("persistent://t/n/a:b@c", "persistent://t/n/a:b@c"),
            ("t/n/0x00000000_0x40000000 at b1:8080", "t/n/0x00000000_0x40000000 at b1:8080"),
        ],
        ids=["a token", "a URL", "a topic", "names"],
    )
    def test_what_nobody_has_read(self, text: str, expected: str) -> None:
        """Tokens and passwords are known by their shape, names of Pulsar are left."""
        assert redacted(text) == expected

    @pytest.mark.parametrize("word", ["pulsar", "superuser", "k1"])
    def test_a_word_as_password(self, word: str) -> None:
        """The gap in a known sentence would tell it: only the header's form is cut out."""
        remember(word, "admin")
        told = redacted(f"give {word}.token_file {base64.b64encode(f'admin:{word}'.encode()).decode()}")
        assert told == f"give {word}.token_file {HIDDEN}"

    def test_rotated_secrets(self) -> None:
        """The last ones stay known, and the number of them is bounded."""
        for number in range(2 * MOST):
            remember(f"secret-number-{number:04}")
        assert redacted(f"secret-number-{2 * MOST - 1:04} secret-number-{MOST:04}") == f"{HIDDEN} {HIDDEN}"
        assert redacted("secret-number-0000") == "secret-number-0000"

    def test_nothing_is_no_secret(self) -> None:
        """An empty file hides no text."""
        remember("")
        assert redacted("anything") == "anything"

    def test_an_error_of_lbd(self) -> None:
        """What a peer said is redacted in the error that tells of it, whoever writes that down."""
        error = AdminError(f"GET http://b1:8080/x: 401: {JWT}", status=401)
        assert str(error) == f"GET http://b1:8080/x: 401: {HIDDEN}"


class TestJson:
    def test_strings_only(self) -> None:
        """The document stays one, its numbers and lbd's own keys as they were."""
        remember("17000000")
        remember("max_bytes")
        content = b'{"at":1700000012.5,"max_bytes":[17000000,"x 17000000 y"],"17000000":null}\n'
        assert redacted_json(content) == (
            b'{"at":1700000012.5,"max_bytes":[17000000,"x [redacted] y"],"[redacted]":null}\n'
        )

    def test_a_secret_that_json_escapes(self) -> None:
        """Its characters are found behind the backslashes."""
        remember(SECRET)
        for content in (json.dumps({"a": SECRET}), json.dumps({"a": SECRET}, ensure_ascii=False)):
            assert json.loads(redacted_json(content.encode())) == {"a": HIDDEN}

    def test_what_is_no_json(self) -> None:
        """It is redacted all the same."""
        assert redacted_json(f"{{ {JWT}".encode()) == f"{{ {HIDDEN}".encode()

    def test_nothing_to_hide(self) -> None:
        """The same bytes."""
        content = b'{ "a" : 1 }'
        assert redacted_json(content) is content


class TestEdges:
    """Where text leaves the process, what was read from a file does not."""

    @pytest.mark.parametrize(
        "read",
        [
            lambda path: Secret(path).value(),
            lambda path: TokenFiles(path).trouble,
            lambda path: Client("http://127.0.0.1:1", path)._token(),
        ],
        ids=["token of Pulsar", "token of the API", "token for another lbd"],
    )
    def test_whoever_reads_a_secret_hides_it(self, read: Callable[[Path], object], tmp_path: Path) -> None:
        """Reading is enough; nobody has to think of it when something is written."""
        path = tmp_path / "token"
        path.write_text("tok-0123456789\n")
        read(path)
        assert redacted("x tok-0123456789") == f"x {HIDDEN}"

    def test_a_password_with_its_user(self, tmp_path: Path) -> None:
        """What a peer echoes is the header of basic authentication."""
        (tmp_path / "password").write_text("short")
        Secret(tmp_path / "password", "admin").value()
        assert redacted(f"Basic {base64.b64encode(b'admin:short').decode()}") == f"Basic {HIDDEN}"

    @pytest.mark.parametrize("form", ["json", "text"])
    def test_log_lines(self, form: str) -> None:
        """Values, and events; a JSON line stays one."""
        remember(SECRET)
        written = StringIO()
        try:
            log.set_up(form, "info", written)
            structlog.get_logger().warning(f"it said {SECRET}", failure=repr(ValueError(SECRET)), nested=[SECRET])
        finally:
            structlog.reset_defaults()
        assert "k9" not in written.getvalue()
        assert written.getvalue().count(HIDDEN) == 3
        assert form == "text" or json.loads(written.getvalue())["event"] == f"it said {HIDDEN}"

    def test_what_is_kept_and_answered(self) -> None:
        """Journal, history, the API's answers and problems, the terminal."""
        remember(SECRET)
        history = TableRows("moves", _moves(f"500 {SECRET}")).batch()
        assert history["detail"].to_pylist() == [f"500 {HIDDEN}"]
        assert text(f"500 {SECRET}") == plain(f"500 {SECRET}") == f"500 {HIDDEN}"
        for content in (json_bytes({"detail": SECRET}), bytes(problem(400, SECRET).body)):
            assert json.loads(content)["detail"] == HIDDEN

    def test_the_trace_of_a_bug(self, tmp_path: Path) -> None:
        """Python shows values in traces; the line and the trace are redacted."""
        code = f"""
from lbd import cli, errors, redaction
redaction.remember({SECRET!r})
def bug(self, ctx):
    raise errors.as_lbd_error(RuntimeError({SECRET!r}))
cli.click.Group.invoke = bug
cli.main(["status"])
"""
        found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=False)
        assert found.returncode == 1
        assert f"RuntimeError: {HIDDEN}" in found.stderr
        assert "Error: bug in lbd" in found.stderr
        assert "k9" not in found.stderr


def _moves(detail: str) -> dict[str, list[object]]:
    """One move that ended so; what else there is of it does not matter here."""
    return {name: [detail if name == "detail" else None] for name in COLUMNS["moves"]}
