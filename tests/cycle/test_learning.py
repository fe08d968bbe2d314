"""What is learned turn by turn, whatever brokers report."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from lbd.cycle.learning import Learning
from lbd.load.linear import CPU
from lbd.load.settings import LoadSettings
from lbd.load.told import loads, summary
from lbd.observe.parse import LoadReport, Usage
from tests.builders import TAKEN_AT, bundle, report, snapshot, stats
from tests.load.histories import THREE, rounds

ODD = st.sampled_from([0.0, -1.0, float("nan"), float("inf"), -float("inf"), 1e308, 1e-320, 5.0, 80.0])
USAGE = st.builds(Usage, ODD, ODD | st.just(100.0))


@st.composite
def reports(draw: st.DrawFn) -> LoadReport:
    """Any numbers of a broker with up to three bundles."""
    own = {bundle(number): stats(draw(ODD), draw(ODD)) for number in range(draw(st.integers(0, 3)))}
    started = draw(st.sampled_from([1e12, 1.6e12, float("nan")]))
    return report(draw(USAGE), own, bandwidth_in=draw(USAGE), start_timestamp=started)


ROUND = st.dictionaries(st.sampled_from(["a:80", "b:80", "c:80"]), reports(), min_size=1)


@settings(max_examples=60, deadline=None)
@given(st.lists(ROUND, min_size=1, max_size=12))
def test_whatever_is_reported_a_turn_goes_on(seen: list[dict[str, LoadReport]]):
    """Neither an error nor a warning; of each broker there is something to say."""
    learning = Learning()
    for number, one in enumerate(seen):
        now = snapshot(one, TAKEN_AT + 60.0 * number)
        known = learning(now)
        assert summary(loads(now.brokers.ids, known, {}))


def test_settings_count_at_once_and_only_until_samples_tell():
    """A slope that is given, from the first round on, and the truth in the end."""
    learning = Learning(
        LoadSettings.model_validate({"measure": "throughput", "brokers": [{"broker": ".", "slope": 1}]})
    )
    found = [learning(one) for one in rounds(120, THREE)]

    assert found[0] is not None
    assert found[-1] is not None
    assert found[0].sources == ("given",) * 3
    assert found[0].slope[:, CPU].tolist() == [1e-6] * 3
    assert found[-1].sources == ("fitted",) * 3
