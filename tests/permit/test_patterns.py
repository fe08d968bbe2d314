"""Java patterns that must match a whole name, in a time that no pattern can stretch."""

from __future__ import annotations

import re
import subprocess
import sys
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lbd.permit.policies import Pattern

LONG = "a" * 5000 + "!"
ENDLESS = [
    "(a+)+$",
    "(a*)*b",
    "(a|a)*b",
    "(a|aa)+$",
    "(.*a){20}b",
    "((a{1,30}){1,30})b",
    "([a-z]+)*[0-9]",
    "(x+x+)+y|(a+)+$",
]
"""Each keeps a backtracking engine for longer than a test may take."""


def matched(pattern: Pattern, name: str) -> bool:
    """Whether it matches the whole of one name."""
    return bool(pattern.matching((name,))[0])


@pytest.mark.security("an isolation policy's pattern that is endless work for a backtracking engine: matched at once")
@pytest.mark.parametrize("text", ENDLESS)
def test_no_pattern_is_endless(text: str):
    """5,001 characters, of which only the last one does not match."""
    assert not matched(Pattern(text), LONG)


@pytest.mark.security("a pattern that only a backtracking engine knows, and that may be endless for it: refused")
@pytest.mark.parametrize(
    "text",
    [
        *[f"(?={endless})a*!" for endless in ENDLESS],
        r"(a+)+\1b",
        r"(?=a)(a|b)(a|b)(a|b)(a|b)c",
        "(?!x)" + "a?" * 30 + "a" * 30,
        "(?!x).*.*.*b",
    ],
)
def test_what_may_be_endless_is_refused(text: str):
    """By its form: more than two repetitions or three branches, or a group that is repeated."""
    with pytest.raises(ValueError, match="RE2 cannot run it"):
        Pattern(text)


def test_what_is_left_to_backtracking_ends_soon():
    """As much of it as is let through, on a name of 1,000 characters."""
    assert not matched(Pattern("(?!x)(a|a)(a|a)(a|a).*.*b"), "a" * 1000)


@pytest.mark.parametrize(
    ("text", "name", "matches"),
    [
        ("t/n", "t/n", True),
        ("t/n", "t/n2", False),
        ("t/.*", "t/", True),
        ("t/.*", "xt/n", False),
        ("a|b", "b", True),
        ("a|ab", "ab", True),
        ("", "", True),
        ("", "a", False),
        (r"b\.example", "b.example", True),
        (r"b\.example", "bxexample", False),
        (r"broker-\d{1,2}", "broker-17", True),
        (r"broker-\d{1,2}", "broker-170", False),
        (r"\d", "٣", False),  # Java's classes are ASCII
        (r"\w", "ö", False),
        ("t/.", "t/ö", True),
        (r"\Qb.c\E", "b.c", True),
        (r"\Qb.c\E", "bxc", False),
        (r"\p{Lu}", "A", True),
        ("(?i)T/N", "t/n", True),
        ("(?<tenant>t)/n", "t/n", True),
        ("[{]}", "{}", True),
        ("t/(?!special).*", "t/n", True),
        ("t/(?!special).*", "t/special-1", False),
        ("(?!.*test).*", "a/test/b", False),
        (r"(a|b)-\1", "a-a", True),
        (r"(a|b)-\1", "a-b", False),
        ("a++b", "aab", True),
        ("a++ab", "aab", False),
    ],
)
def test_a_whole_name_matches(text: str, name: str, matches: bool):
    """As java.util.regex.Pattern.matches answers."""
    assert matches is matched(Pattern(text), name)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("(", "'('"),
        ("a)|(b", "'a)|(b'"),
        ("a\\", "'a\\\\\\\\'"),
        ("a{99999999999}", "a brace that counts nothing"),
        ("a{,3}", "a brace that counts nothing"),
        ("(" * 1001 + ")" * 1001, "more than 1000 groups"),
        ("[a-z&&[^x]]+", "a class within a class"),
        ("[[:alpha:]]", "a class within a class"),
        (r"\p{javaLowerCase}", "'"),
    ],
)
def test_what_java_reads_otherwise_is_refused(text: str, problem: str):
    """With the pattern and what is wrong with it."""
    with pytest.raises(ValueError, match=re.escape(problem) if problem[0] != "'" else "^'"):
        Pattern(text)


PIECES = st.sampled_from(
    ["a", "b", "/", "-", ".", "[ab]", "[^a]", r"\d", "a*", "b+", "(?:a|b)", "(ab)?", "a{1,2}", "x"]
)


@given(st.lists(PIECES, max_size=8), st.lists(st.text("ab/-x1", max_size=8), min_size=1, max_size=20))
def test_both_engines_agree(pieces: list[str], names: list[str]):
    """On what is no trouble for either, for one name and for many at once."""
    text = "".join(pieces)
    expected = [re.fullmatch(text, name) is not None for name in names]

    assert expected == Pattern(text).matching(tuple(names)).tolist()
    assert expected == [matched(Pattern(text), name) for name in names]


def test_many_names_cost_little():
    """Ten thousand namespaces and twenty policies take a part of a second of this thread's CPU, not minutes."""
    names = tuple(f"tenant-{at % 100}/namespace-{at}" for at in range(10_000))
    begun = time.thread_time()
    found = [Pattern(f"tenant-{at}/.*").matching(names).sum() for at in range(20)]

    assert found == [100] * 20
    assert time.thread_time() - begun < 20


def test_no_pandas_is_loaded():
    """It takes a second and 50 MB, wherever it is installed."""
    call = "Pattern('a').matching(('a',))"
    script = f"from lbd.permit.policies import Pattern; import sys; {call}; print('pandas' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert done.stdout == "False\n"
