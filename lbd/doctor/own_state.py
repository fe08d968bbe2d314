"""Checks of lbd itself: its settings, state directory, secret files, the leading lbd, and its load model."""

from __future__ import annotations

import os
import stat
from itertools import takewhile
from math import inf
from typing import TYPE_CHECKING

from lbd import __version__
from lbd.api.token import TokenFiles
from lbd.clock import moment
from lbd.daemon.election import KEPT_SECONDS, OWN_NAME
from lbd.decide.avg_shedder import AvgShedderSettings
from lbd.doctor.findings import Check, broker_names, named, of_all
from lbd.errors import AdminError, LbdError, UsageError
from lbd.files import owner, user_name
from lbd.load.summary import known_text
from lbd.notify.sender import Receiver
from lbd.operations.parts import broker_loads, stored_learning
from lbd.permit.quiet_hours import quiet_until
from lbd.permit.settings import canary_text
from lbd.pulsar.broker_configuration import sheds
from lbd.pulsar.leader_topic import LeaderTopic
from lbd.reason import Reason
from lbd.store.control import Control
from lbd.store.database import STORE_NAME
from lbd.store.drains import drains_in_force
from lbd.store.journal import KEEP_SECONDS, read
from lbd.store.state import KeptTakeOver, StateDir
from lbd.store.status import in_force, read_status, running, steps_now
from lbd.store.turns import KeptTurns
from lbd.text import counted, duration_text, minutes_text, utc

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence
    from pathlib import Path

    from lbd.config import Settings
    from lbd.doctor.findings import Finding
    from lbd.doctor.survey import Survey
    from lbd.load.summary import BrokerLoad
    from lbd.model import Snapshot
    from lbd.pulsar.leader_topic import Writer
    from lbd.store.journal import Past
    from lbd.store.status import Status


CANARY = Check("canary", "while it is set, lbd by itself moves nothing else")
SETTINGS = Check("settings", "settings that are right one by one can forbid every move, or allow too many")
DEFAULT_STATS_SECONDS = 60.0
AVG_SHEDDER = AvgShedderSettings.name


def check_own_settings(survey: Survey) -> Iterator[Finding]:
    """Each combination of settings that does not work, with its values; one finding if there is none."""
    findings = [
        *_never(survey.settings),
        *_always_quiet(survey),
        *_too_soon(survey),
        *_without_effect(survey),
        *(SETTINGS.warning(setting.text, setting.todo) for setting in survey.unmatched),
    ]
    yield from findings
    if not findings:
        yield SETTINGS.ok("go together")
    if (canary := survey.settings.guardrails.canary) is not None:
        words = canary_text(canary.namespaces, canary.max_moves_per_hour)
        yield CANARY.warning(words, "remove guardrails.canary to widen")


def _never(settings: Settings) -> Iterator[Finding]:
    """Settings with which lbd never moves anything."""
    weights = settings.weights
    scored = (weights.cpu, weights.direct_memory, weights.bandwidth_in, weights.bandwidth_out)
    if settings.strategy == AVG_SHEDDER and settings.avg_shedder.low_threshold >= 100 * max(scored):
        low = settings.avg_shedder.low_threshold
        message = f"avg_shedder.low_threshold={low:g}, and no score passes {100 * max(scored):g} points"
        yield SETTINGS.problem(message, "lower it (default 15)")
    if settings.strategy == AVG_SHEDDER and settings.avg_shedder.max_unload_percentage == 0:
        yield SETTINGS.problem("avg_shedder.max_unload_percentage=0: nothing is ever to be moved", "set it to 0.5")


def _always_quiet(survey: Survey) -> Iterator[Finding]:
    """Quiet hours that never end."""
    windows = survey.settings.guardrails.quiet_hours
    quiet = quiet_until(windows, survey.taken_at)
    if quiet is not None and quiet[0] == inf:
        words = f"guardrails.quiet_hours: {'; '.join(map(str, windows))} leave no time of the week"
        yield SETTINGS.problem(words, "leave a time in which bundles may move, or set mode: observe")


def _too_soon(survey: Survey) -> Iterator[Finding]:
    """Settings with which lbd moves on too little evidence, or too much at once."""
    if survey.settings.strategy == AVG_SHEDDER:
        yield from _too_soon_for_pairs(survey.settings.avg_shedder)
    guardrails = survey.settings.guardrails
    stats = _stats_seconds(survey)
    if guardrails.cool_down_minutes * 60 < 2 * stats:
        renewed = f"brokers renew rates every {duration_text(stats)}"
        message = f"guardrails.cool_down_minutes={guardrails.cool_down_minutes:g}, {renewed}"
        yield SETTINGS.warning(
            f"{message}: a bundle may move again on its old rates", "set it to 30, or 2 intervals at least"
        )


def _too_soon_for_pairs(chosen: AvgShedderSettings) -> Iterator[Finding]:
    for name, hits in (("hit_count_low", chosen.hit_count_low), ("hit_count_high", chosen.hit_count_high)):
        if hits <= 1:
            message = f"avg_shedder.{name}={hits}: one CPU sample is enough to move"
            yield SETTINGS.warning(message, "give it 2 or more: a single sample may be a spike")
    if chosen.low_threshold <= 0:
        message = f"avg_shedder.low_threshold={chosen.low_threshold:g}: level brokers count as apart"
        yield SETTINGS.warning(message, "raise it (default 15)")
    if chosen.max_unload_percentage > 0.5:
        message = f"avg_shedder.max_unload_percentage={chosen.max_unload_percentage:g}: a pair swaps sides above 0.5"
        yield SETTINGS.warning(message, "set it to 0.5 or less")


def _stats_seconds(survey: Survey) -> float:
    texts = [runtime.get("statsUpdateFrequencyInSecs", "") for runtime in survey.runtime.values()]
    return max((float(text) for text in texts if text.isdecimal()), default=DEFAULT_STATS_SECONDS)


def _without_effect(survey: Survey) -> Iterator[Finding]:
    """Settings that have no effect."""
    settings = survey.settings
    if settings.strategy == AVG_SHEDDER:
        yield from _without_effect_on_pairs(settings.avg_shedder)
    elif settings.avg_shedder != AvgShedderSettings():
        yield SETTINGS.warning(
            f"avg_shedder is set, and strategy is {settings.strategy}", "set strategy: avg-shedder, or leave it out"
        )
    if settings.weights.memory:
        yield SETTINGS.warning(
            f"weights.memory={settings.weights.memory:g}: no score counts heap, as in Pulsar since 3.0", "leave it out"
        )
    if settings.restore_on_stop and settings.in_broker_shedding == "refuse":
        yield SETTINGS.warning(
            "restore_on_stop=true with in_broker_shedding=refuse: nothing is taken, nothing is given back",
            "set in_broker_shedding: take-over, or leave restore_on_stop out",
        )
    sample = survey.observation.sample_interval_seconds if survey.observation is not None else 60.0
    if settings.interval_seconds > sample:
        message = (
            f"interval_seconds={settings.interval_seconds:g}, a new CPU sample comes every {duration_text(sample)}"
        )
        samples = settings.strategy_settings.wanted_hits.low
        lasts = duration_text(samples * settings.interval_seconds)
        words = f"{message}: {samples} samples above the threshold take {lasts}"
        yield SETTINGS.warning(words, f"set it below {sample:g}")


def _without_effect_on_pairs(chosen: AvgShedderSettings) -> Iterator[Finding]:
    if chosen.low_threshold > chosen.high_threshold:
        message = (
            f"avg_shedder.low_threshold={chosen.low_threshold:g} is above high_threshold={chosen.high_threshold:g}"
        )
        yield SETTINGS.warning(f"{message}: every pair that is apart counts high at once", "lower low_threshold")
    if chosen.hit_count_high > chosen.hit_count_low:
        message = f"avg_shedder.hit_count_high={chosen.hit_count_high} is above hit_count_low={chosen.hit_count_low}"
        yield SETTINGS.warning(
            f"{message}: a wide gap acts no sooner than a small one", "lower hit_count_high (default 2)"
        )


# --- state: whether an lbd runs, and whether its state directory is intact

LEAST_FREE_BYTES, FEW_FREE_BYTES = 16 * 1024**2, 512 * 1024**2
"""Free space of a problem and of a warning: a store has 25 MB, averages of 100,000 bundles take 10."""

LASTING_SECONDS = 4 * 3600.0
"""Age of a drain that may be forgotten: longer than replacing a machine takes."""

DIRECTORY = Check("state-dir", "without it lbd forgets cool-downs and open moves, and unloads nothing")
RUNNING = Check("lbd", "only a running lbd moves anything; what it warns of needs a person")
OF_CANARY = {Reason.CANARY.label, Reason.CANARY_UNLOADS.label}
BLOCKED = Check("blocked", "brokers stay too far apart until that limit or hold ends")
PAUSED = Check("pause", "while paused lbd observes and counts, and moves nothing")
DRAINED = Check("drains", "a drained broker is in no pair, average or destination: the others carry its load")
LOST_SECONDS = 3600.0
"""Time within which an absent broker counts as lost; one that left earlier was removed on purpose."""

LOST = Check("lost-brokers", "the others carry the load of a broker that left")
TAKE_OVER = Check("take-over", "while it lasts no broker balances by itself, also when lbd is stopped")
JOURNAL = Check("journal", "it is the only truth about moves and cool-downs")


def check_state_dir(survey: Survey) -> Iterator[Finding]:
    """Check the state directory of the settings, as far as this user may read it."""
    directory = survey.settings.state_dir
    if not directory.is_dir():
        yield _to_be_made(directory)
        yield RUNNING.unknown("none has run on this state_dir", START)
        return
    if not os.access(directory, os.R_OK | os.X_OK):
        message = f"{directory} belongs to {owner(directory)}, this is user {user_name(os.geteuid())}"
        yield DIRECTORY.unknown(message, f"run lbd doctor as {owner(directory)} or root")
        return
    yield _directory(directory)
    yield from _guarded(RUNNING, _running(survey))
    yield from _guarded(DRAINED, drains(directory, survey.taken_at, survey.active))
    taken = of_all(_taken_over(directory, survey.runtime), survey.runtime, survey.active, "the configuration")
    yield from _guarded(TAKE_OVER, taken)
    if survey.observation is not None:
        yield from _guarded(LOST, _lost(directory, survey.observation.active, survey.taken_at))


def journal(survey: Survey) -> tuple[Past | None, list[Finding]]:
    """The journal and the findings about it; None if it cannot be read."""
    directory = survey.settings.state_dir
    if not os.access(directory, os.R_OK | os.X_OK):
        return None, []
    try:
        if lost := StateDir(directory).journal_lost:
            return None, [JOURNAL.problem(lost, "put the journal back, or lbd run --new-journal")]
        past = read(directory / STORE_NAME, survey.taken_at, KEEP_SECONDS, boot=moment())
        return past, list(_journal(directory, past, survey.taken_at))
    except UsageError as error:
        return None, [JOURNAL.problem(str(error), "mend or remove the file; removing it forgets cool-downs")]


def _guarded(check: Check, findings: Iterator[Finding]) -> Iterator[Finding]:
    """The findings of a check, or one about a file that cannot be read."""
    try:
        yield from findings
    except UsageError as error:
        yield check.problem(str(error), "mend or remove that file, or run lbd doctor as a user who may read it")


START = "start it: lbd run, or systemctl start lbd"


def _to_be_made(path: Path) -> Finding:
    """Check that lbd could make its directory, if it ran as this user."""
    there = next(parent for parent in path.absolute().parents if parent.exists())
    if there.is_dir() and os.access(there, os.W_OK | os.X_OK):
        return DIRECTORY.ok(f"{path} is not there yet: lbd run makes it")
    message = f"{path} is not there, and user {user_name(os.geteuid())} may not make it in {there}"
    return DIRECTORY.unknown(
        message, f"run lbd doctor as lbd's user, or make it for that user: install -d -o USER {path}"
    )


def _directory(path: Path) -> Finding:
    status = path.stat()
    room = os.statvfs(path)
    free = room.f_bavail * room.f_frsize
    message = f"{path}, of user {owner(path)}, {free / 1e9:,.1f} GB free"
    if free < LEAST_FREE_BYTES:
        return DIRECTORY.problem(f"{message}: no room for the journal", "make room")
    if status.st_mode & stat.S_IWOTH:
        return DIRECTORY.problem(f"{message}, writable for everybody: anybody may order unloads", f"chmod o-w {path}")
    if room.f_flag & os.ST_RDONLY or not status.st_mode & stat.S_IWUSR:
        where = "on a file system that is mounted read-only" if room.f_flag & os.ST_RDONLY else "which may not write it"
        return DIRECTORY.problem(
            f"{message}, {where}: no move can be noted, so none is made", "let lbd's user write it"
        )
    if not os.access(path, os.W_OK):
        message = f"{message}; user {user_name(os.geteuid())} may not write it"
        return DIRECTORY.unknown(message, "run lbd doctor as lbd's user; that one must be able to")
    if free < FEW_FREE_BYTES:
        return DIRECTORY.warning(message, "make room")
    return DIRECTORY.ok(message)


def _running(survey: Survey) -> Iterator[Finding]:
    directory, now = survey.settings.state_dir, survey.taken_at
    pid = running(directory)
    if not (directory / "status.json").exists() and pid is None:
        yield RUNNING.unknown("none runs on this state_dir, and none has ended a turn", START)
        return
    if not (directory / "status.json").exists():
        message = f"process {pid or '?'} runs, and has ended no turn yet"
        yield RUNNING.unknown(message, "run lbd doctor again in a minute")
        return
    status, pause = in_force(read_status(directory), Control(directory), now)
    yield _life(status, pid, now)
    own = {setting.text for setting in survey.unmatched}
    for warning in status.warnings if pid is not None else ():
        if warning not in own:
            yield RUNNING.warning(f"it says: {warning}", "see docs/runbook.md")
    if pid is not None and status.verdict is not None and status.verdict.kind == "blocked":
        has_finding = status.hold is not None or status.verdict.reason in OF_CANARY  # they have findings of their own
        level = BLOCKED.warning if has_finding else BLOCKED.problem
        steps = steps_now(status, pid, pause, now)  # a status of an earlier version has none
        todo = steps[0].text(now) if steps else "see lbd explain"
        yield level(status.verdict.words.removeprefix("blocked "), todo)
    if pause is not None:
        until = f"until {utc(pause.until)}" if pause.until is not None else "without end"
        yield PAUSED.warning(f"by {pause.by} {until}{pause.reason and f': {pause.reason}'}", "lbd resume ends it")


def drains(directory: Path, now: float, active: Collection[str]) -> Iterator[Finding]:
    """Drains in force: a long one may be forgotten, one with bundles that did not move needs a person.

    A drain of an inactive broker is one, too, unless the ``active`` ones are unknown.
    """
    for drain, work in drains_in_force(directory, now):
        reason = f": {drain.reason}" if drain.reason else ""
        message = f"{drain.broker} by {drain.by} since {utc(drain.since)}{reason}"
        todo = f"lbd drain {drain.broker} --release ends it"
        if active and drain.broker not in active:
            yield DRAINED.warning(f"{message}; it is no active broker", f"{todo}, if it will not come back")
        elif work is not None and work.left:
            yield DRAINED.warning(f"{message}; {work.sentence.rstrip('.')}", f"lbd explain BUNDLE says why; {todo}")
        elif now - drain.since > LASTING_SECONDS:
            yield DRAINED.warning(f"{message}, for {minutes_text(now - drain.since)}", todo)
        elif not active:
            yield DRAINED.unknown(f"{message}; no broker says which are active", "see observation")
        else:
            yield DRAINED.ok(message)


def _lost(directory: Path, active: Collection[str], now: float) -> Iterator[Finding]:
    """Brokers with a report within the last hour that are not active now."""
    reported_at: dict[str, float] = {}
    for turn in takewhile(lambda turn: turn.ended_at > now - LOST_SECONDS, KeptTurns(directory)):
        for broker in turn.brokers:
            reported_at.setdefault(broker.id, turn.ended_at)
    for name, reported in reported_at.items():
        if name not in active:
            message = f"{name} left after {utc(reported)} ({minutes_text(now - reported)} ago) and has not come back"
            yield LOST.warning(message, "start it again and see its log; nothing if it was taken out on purpose")


def _life(status: Status, pid: int | None, now: float) -> Finding:
    last = f"{status.age_text(now)}: {status.sentence}"
    if pid is None:
        return RUNNING.warning(f"none runs; {last}", steps_now(status, pid, None, now)[0].text(now))
    message = f"process {pid or '?'} runs{', observing only' if status.observe_only else ''}; {last}"
    if status.late(now):
        expected = f"wanted every {duration_text(status.interval_seconds)}"
        return RUNNING.problem(f"{message} ({expected})", "see its log; restart it if it does not go on")
    if status.error is not None:
        return RUNNING.problem(f"{message} ({status.error})", "see its log")
    if status.version != __version__:
        return RUNNING.warning(f"{message} (version {status.version}, this is {__version__})", "restart it")
    return RUNNING.ok(message)


def _taken_over(directory: Path, runtime: Mapping[str, Mapping[str, str]]) -> Iterator[Finding]:
    """Compare the note of the take-over with the configuration of brokers."""
    note = KeptTakeOver(directory).load()
    if note is None:
        return
    message = (
        f"shedding off since {utc(note.at)} by lbd, last seen off {utc(note.seen_at) if note.seen_at else 'never'}"
    )
    shedding = [broker for broker, settings in runtime.items() if sheds(settings)]
    if note.phase == "taken" and shedding:
        words = f"{message}; on again at {broker_names(shedding, runtime)}"
        yield TAKE_OVER.warning(words, "the next turn of lbd run turns it off; else see who sets it")
    elif note.phase == "taken":
        yield TAKE_OVER.ok(f"{message}; lbd release gives it back")
    else:
        half = note.phase.replace("taking", "take-over").replace("releasing", "release")
        yield TAKE_OVER.warning(
            f"{message}; a {half} was not finished: some brokers may shed", "run lbd, or lbd release"
        )


def _journal(directory: Path, past: Past, now: float) -> Iterator[Finding]:
    if past.open and running(directory) is None:
        bundles = named([unload.bundle for _, unload in past.open])
        yield JOURNAL.warning(
            f"no outcome yet: {bundles}; lbd ended in the middle", "the next lbd run asks who owns them"
        )
    else:
        under_way = f", {len(past.open)} under way" if past.open else ""
        lately = sum(time > now - 86_400 for time in past.attempted_at.values())
        yield JOURNAL.ok(f"{counted(lately, 'bundle')} attempted in the last day{under_way}")


# --- secrets: whether other users of this machine can read or replace them

SECRETS = Check(
    "secret-files", "whoever reads them can do to the cluster, or order of lbd, all that lbd can; who writes them, too"
)


def check_secret_files(survey: Survey) -> Iterator[Finding]:
    """Check each file of the settings that holds a token, a password or a private key."""
    files = dict(_files(survey.settings))
    findings = {name: finding for name, path in files.items() if (finding := _open(name, path)) is not None}
    yield from findings.values()
    if not findings.keys() & {"api.token_file", "api.tokens_file"}:
        yield from _tokens(survey.settings)
    if files and not findings:
        yield SECRETS.ok(f"{', '.join(files)}: there, and nobody else may read or write")


def _tokens(settings: Settings) -> Iterator[Finding]:
    """Named tokens without the role for requests that only the API accepts, such as passing limits."""
    files = TokenFiles(settings.api.token_file, settings.api.tokens_file)
    callers = files.callers
    roles = {caller.role for caller in callers}
    if files.trouble:
        yield TOKENS.problem(files.trouble, "correct the file; lbd reads it again by itself")
    elif "administer" not in roles and settings.api.tokens_file is not None:
        words = f"none with the role administer, but {' and '.join(sorted(roles))}: nobody passes limits over the API"
        yield TOKENS.warning(words, "give one of them that role, if that is not what you want")
    named_callers = {caller.name for caller in callers if caller.name and caller.role != "read"}
    if settings.mode == "approve" and settings.approvers > 1 and len(named_callers) < settings.approvers - 1:
        words = f"approvers={settings.approvers}, and {counted(len(named_callers), 'named token')} may apply a plan"
        yield TOKENS.warning(f"{words}: users of this machine must", "add named tokens to api.tokens_file")


def _files(settings: Settings) -> Iterator[tuple[str, Path]]:
    pulsar, api = settings.pulsar, settings.api
    named = {
        "pulsar.token_file": pulsar.token_file,
        "pulsar.basic.password_file": pulsar.basic.password_file if pulsar.basic is not None else None,
        "pulsar.oauth2.private_key_file": pulsar.oauth2.private_key_file if pulsar.oauth2 is not None else None,
        "pulsar.tls.key_file": pulsar.tls.key_file,
        "api.token_file": api.token_file,
        "api.tokens_file": api.tokens_file,
        "api.tls.key_file": api.tls.key_file,
        "notify.url_file": settings.notify.url_file,
    }
    yield from ((name, path) for name, path in named.items() if path is not None)


def _open(name: str, path: Path) -> Finding | None:
    """Fault of a secret file. A group may read it: the user that lbd runs as is in it."""
    try:
        status = path.stat()
        is_file = stat.S_ISREG(status.st_mode)
        empty = is_file and os.access(path, os.R_OK) and not path.read_bytes().strip()
    except OSError as error:
        why = error.strerror or type(error).__name__
        todo = "put the file there, or run lbd doctor as a user who sees it"
        return SECRETS.unknown(f"{name}: {path}: {why}", todo)
    mode = status.st_mode & 0o7777
    todo = f"chmod 0640 {path}, with the group of the user that lbd runs as; then replace the secret"
    if empty or not is_file:
        message = f"{name}: {path} is {'empty' if is_file else 'no file'}"
        return SECRETS.problem(message, "put the secret there; lbd reads it again by itself")
    if mode & 0o022:
        who = "everybody" if mode & 0o002 else "its group"
        return SECRETS.problem(f"{name}: {path}: {who} may write it (mode {mode:04o})", todo)
    if mode & 0o004:
        return SECRETS.warning(f"{name}: {path}: everybody may read it (mode {mode:04o})", todo)
    if not os.access(path, os.R_OK):
        message = f"{name}: {path}: user {user_name(os.geteuid())} may not read it"
        return SECRETS.unknown(message, "run lbd doctor as lbd's user; that one must be able to")
    return None


TOKENS = Check("api-tokens", "who has no token with the role orders nothing over lbd's API")

# --- the webhook

NOTIFY = Check("notify", "people hear of plans that wait, and of what lasts, only where the webhook takes messages")


def check_notify(settings: Settings, *, send: bool) -> Iterator[Finding]:
    """Check the webhook's address, and with ``send`` that it accepts a message. Nothing where there is none."""
    if settings.notify.url_file is None:
        if send:
            yield NOTIFY.warning("notify.url_file is not set: nothing was sent", "set it; see docs/notifications.md")
        return
    receiver = Receiver(settings.notify)
    try:
        receiver.url()
        if send:
            receiver.post_test()
    except LbdError as error:
        yield NOTIFY.warning(f"{receiver.name}: {error}", "put the address that the receiver gave into notify.url_file")
    else:
        where = f"{receiver.name}, {settings.notify.format}"
        if send:
            yield NOTIFY.ok(f"{where}, took a test message")
        else:
            yield NOTIFY.unknown(f"{where}: no message was sent", "lbd doctor --notify sends one")
    finally:
        receiver.close()


# --- the leading lbd, as the broker of the leader topic reports it

LEADER = Check("leading-lbd", "of several lbds only the one that leads moves anything")
RETENTION = Check(
    "leader-topic-kept", "an lbd that was away learns cool-downs, budgets and open moves from leader.topic"
)
ALLOWED = Check(
    "leader-topic-writers", "who may write leader.topic may order pauses and drains, and keep all from leading"
)


def check_leader(settings: Settings) -> tuple[list[Finding], int]:
    """Findings about the leader topic, and the number of requests sent.

    None with a single instance: only the lock of the state directory keeps others away then.
    """
    if not settings.leader.enabled:
        return [], 0
    topic = LeaderTopic(settings.pulsar, settings.leader.topic)
    leading, reachable = _leading(topic)
    return [leading, *((_retention(topic), _allowed(topic)) if reachable else ())], topic.http.sent


def _leading(topic: LeaderTopic) -> tuple[Finding, bool]:
    """The leading instance, and whether the leader topic could be read."""
    try:
        writers = topic.writers()
    except AdminError as error:
        if error.status == 404:
            return LEADER.warning(f"{topic.topic} is not there yet", "start lbd run: the first one makes it"), False
        todo = "while its broker cannot be asked, no lbd leads and none moves anything"
        return LEADER.problem(str(error), todo), False
    except LbdError as error:
        return LEADER.problem(str(error), "mend what keeps lbd from asking; nobody moves anything meanwhile"), False
    return _written_by(topic.topic, writers), True


def _written_by(topic: str, writers: Sequence[Writer]) -> Finding:
    strangers = [str(writer) for writer in writers if not OWN_NAME.fullmatch(writer.producer_name)]
    if strangers:
        message = f"{topic} is written by {'; '.join(strangers)}, which is no lbd: no lbd can lead"
        return LEADER.problem(message, "stop that producer, or set leader.topic to a topic that nobody else writes")
    if len(writers) > 1:
        message = f"{' and '.join(sorted(map(str, writers)))} write {topic}, where one may"
        return LEADER.problem(message, "stop all but one; see that the topic's broker enforces exclusive producers")
    if not writers:
        todo = "start lbd run with leader.enabled on one machine at least"
        return LEADER.warning(f"nobody writes {topic}", todo)
    return LEADER.ok(f"{writers[0].producer_name} leads, by {topic}")


def _retention(topic: LeaderTopic) -> Finding:
    try:
        lost = topic.early_loss(KEPT_SECONDS)
    except LbdError as error:
        return RETENTION.warning(
            f"not checked: {error}", "see that no message TTL and subscription expiration hold there"
        )
    if lost:
        todo = "pulsar-admin namespaces set-message-ttl, set-subscription-expiration-time; 0 is never"
        return RETENTION.warning(lost, todo)
    return RETENTION.ok(f"for {KEPT_SECONDS // 86_400} days")


def _allowed(topic: LeaderTopic) -> Finding:
    try:
        roles = topic.producers_allowed()
    except LbdError as error:
        return ALLOWED.warning(f"not checked: {error}", "see that no role but lbd's own may write the topic")
    if roles is None:
        return ALLOWED.ok("every client of the cluster: authorization is off, so that each may unload bundles, too")
    if roles:
        return ALLOWED.warning(f"granted to {', '.join(roles)}", "revoke what lbd does not need; see SECURITY.md")
    return ALLOWED.ok("granted to no role: superusers and the tenant's admins only")


# --- load model: what lbd has learned of brokers, and load that no bundle causes

MODEL = Check(
    "load-model", "a destination's score is predicted by what traffic costs it, without that by shares of usage"
)
BACKGROUND = Check("background", "load that no bundle makes cannot be moved away, and looks like a hot broker's")
UNLIKE = Check("unlike-brokers", "the same bundle is more points on a weaker machine")


def check_learned(survey: Survey, snapshot: Snapshot) -> Iterator[Finding]:
    """Check the learned load of the brokers of this round in the state directory."""
    settings = survey.settings
    directory = settings.state_dir
    if directory.is_dir() and not os.access(directory, os.R_OK | os.X_OK):
        yield MODEL.unknown(f"{directory} may not be read", "run lbd doctor as its user or root")
        return
    learning = stored_learning(settings)
    learning.take(snapshot)
    loads = broker_loads(snapshot, learning.known(snapshot), settings)
    yield _model(loads)
    yield from _background(loads)
    yield from _unlike(loads, settings)


def _model(loads: Sequence[BrokerLoad]) -> Finding:
    unknown = [load.broker for load in loads if load.state == "unknown"]
    if unknown:
        message = f"{known_text(loads)}, not yet of {named(unknown)}"
        return MODEL.unknown(message, "nothing: lbd run learns it while traffic changes")
    return MODEL.ok(known_text(loads))


def _background(loads: Sequence[BrokerLoad]) -> Iterator[Finding]:
    measured = [load for load in loads if load.background is not None]
    for load in measured:
        if load.beside is not None:
            message = f"{load.neighbour}: {load.background:.0f} of its points of CPU are no traffic's"
            yield BACKGROUND.warning(message, "look there for what is not the broker's (top); no move can take it away")
    if len(measured) > 1 and not any(load.beside is not None for load in measured):
        yield BACKGROUND.ok(f"at most {max(load.background or 0 for load in measured):.0f} points of CPU, alike on all")


def _unlike(loads: Sequence[BrokerLoad], settings: Settings) -> Iterator[Finding]:
    for load in loads:
        if load.unlike is not None:
            message = f"{load.broker}: the same traffic takes {load.unlike:.1f} times the CPU of the others"
            if settings.strategy_settings.wants_slopes:
                yield UNLIKE.ok(f"{message}; moves are sized by it")
            else:
                yield UNLIKE.warning(
                    message, "nothing, if it is another kind of machine; least-moves sizes moves by it"
                )
