"""Namespace isolation and anti-affinity: the brokers on which a namespace may be. Pure.

A forced destination bypasses every check of the brokers, so lbd makes them.

Patterns are Java regular expressions that must match a whole name. Superusers write them and brokers run them, so any
pattern may occur. ``(a+)+$`` holds a backtracking engine, and with it the interpreter, for years. RE2, part of pyarrow,
takes time in proportion to the name. A pattern that RE2 does not support (look-around, back-references, possessive
repetition) is left to ``re`` if few paths are to be tried, else refused.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from functools import cache, lru_cache
from itertools import compress
from typing import TYPE_CHECKING, Any

import numpy as np

from lbd.model import Pool, Skip, Unload, bundle_namespace
from lbd.reason import Reason
from lbd.text import shown

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from lbd.model import Snapshot
    from lbd.permit.consent import Consents


if TYPE_CHECKING:
    BoolArray = NDArray[np.bool_]

MAX_GROUPS = 1000
MAX_REPETITIONS, MAX_BRANCHES = 2, 3
"""Limits of a pattern that is left to ``re``: it tries at most 4 n² paths for a name of n characters."""

_ESCAPED = re.compile(r"\\(?:[pPx]\{\w*\}|.)", re.DOTALL)
_CLASS = re.compile(r"\[\^?\]?[^\]]*\]")
_NESTED_CLASS = re.compile(r"\[[^\]]*(?:\[|&&)")
_UNCOUNTED_BRACE = re.compile(r"\{(?!\d{1,4}(?:,\d{0,4})?\})")
_REPETITION = re.compile(r"(?<!\()[*+?{]")
_REPEATED_GROUP = re.compile(r"\)[*+?{]")


@dataclass(frozen=True)
class Pattern:
    """One pattern, by its ``text``. Raises ValueError for one that cannot be run as Java runs it."""

    text: str

    def __post_init__(self) -> None:
        """Classes within a class, and braces without a count, mean something else to Python and RE2 than to Java."""
        plain = _ESCAPED.sub("x", self.text)
        flat = _CLASS.sub("x", plain)
        if plain.count("(") > MAX_GROUPS:
            raise ValueError(f"{shown(self.text)}: more than {MAX_GROUPS} groups")
        if _NESTED_CLASS.search(plain):
            raise ValueError(f"{shown(self.text)}: a class within a class")
        if _UNCOUNTED_BRACE.search(flat):
            raise ValueError(f"{shown(self.text)}: a brace that counts nothing")
        if not _is_linear(self.text):
            few = len(_REPETITION.findall(flat)) <= MAX_REPETITIONS and flat.count("|") <= MAX_BRANCHES
            if not few or _REPEATED_GROUP.search(flat):
                raise ValueError(f"{shown(self.text)}: RE2 cannot run it, and it may take too long otherwise")
            _backtracking(self.text)

    def matching(self, names: tuple[str, ...]) -> BoolArray:
        """Which of the names it matches as a whole, bool (N,). One name alone costs as much as a thousand together."""
        if _is_linear(self.text):
            return _linear(rf"\A(?:{self.text})\z", names)
        pattern = _backtracking(self.text)
        return np.array([pattern.fullmatch(name) is not None for name in names], dtype=np.bool_)


@lru_cache(maxsize=1000)
def _is_linear(text: str) -> bool:
    """Whether RE2 knows the pattern, by itself and as it is run."""
    try:
        _linear(text, ("",))
        _linear(rf"\A(?:{text})\z", ("",))
    except ValueError:
        return False
    return True


@lru_cache(maxsize=1000)
def _backtracking(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text, re.ASCII)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"{shown(text)}: {error}") from error


def _linear(text: str, names: tuple[str, ...]) -> BoolArray:
    """Raises ValueError where RE2 does not know the pattern."""
    compute = _compute()
    matches = compute.match_substring_regex(_column(names), text)
    bits = np.unpackbits(np.frombuffer(matches.buffers()[1], np.uint8), bitorder="little")
    return bits[: len(names)].astype(np.bool_)


@lru_cache(maxsize=4)
def _column(names: tuple[str, ...]) -> Any:  # noqa: ANN401 - pyarrow has no types
    """As pyarrow's array, made from bytes: from a list it would be made with pandas, which takes a second to load."""
    import pyarrow as pa  # noqa: PLC0415 - see _compute

    texts = [name.encode() for name in names]
    ends = np.cumsum([0, *map(len, texts)], dtype=np.int32)
    return pa.StringArray.from_buffers(len(texts), pa.py_buffer(ends), pa.py_buffer(b"".join(texts)))


@cache
def _compute() -> Any:  # noqa: ANN401 - pyarrow has no types
    import pyarrow.compute  # noqa: PLC0415 - where there is no policy it is not needed, and takes 0.3 s to load

    return pyarrow.compute


# --- isolation
# Source: LoadManagerShared.applyNamespacePolicies and NamespaceIsolationPolicies; brokers are matched by host alone,
# namespaces by their full name. Of several policies that match a namespace Pulsar takes the first of a hash map: here a
# broker must be allowed by all of them.


@dataclass(frozen=True)
class Policy:
    """One isolation policy. Secondaries join while fewer than ``min_limit`` primaries are active."""

    name: str
    namespaces: tuple[Pattern, ...]
    primaries: tuple[Pattern, ...]
    secondaries: tuple[Pattern, ...] = ()
    min_limit: int = 0

    def covers(self, namespaces: tuple[str, ...]) -> BoolArray:
        """Whether the policy says where each namespace may be, bool (N,)."""
        return _matching(self.namespaces, namespaces)

    def reserves(self, brokers: tuple[str, ...]) -> BoolArray:
        """Which brokers (``host:port``) are its primaries, and so not for namespaces without a policy, bool (N,)."""
        return _matching(self.primaries, _hosts(brokers))

    def allows(self, active: tuple[str, ...]) -> BoolArray:
        """On which of the active brokers its namespaces may be, bool (N,)."""
        primaries = self.reserves(active)
        if int(primaries.sum()) >= self.min_limit:
            return primaries
        return primaries | _matching(self.secondaries, _hosts(active))


@dataclass(frozen=True)
class Isolation:
    """The isolation policies of a cluster. Nothing moves unless ``is_known``; ``problem`` is why they are not known."""

    policies: tuple[Policy, ...] = ()
    is_known: bool = True
    problem: str = "isolation policies cannot be read"

    def of(self, namespace: str) -> tuple[Policy, ...]:
        """The policies that say where a namespace may be."""
        return self._of_each((namespace,))[0]

    def brokers(self, namespace: str, active: Sequence[str]) -> frozenset[str]:
        """Those of the active brokers on which a namespace may be."""
        return self._allowed(self.of(namespace), tuple(active)) if self.is_known else frozenset()

    def nobody(self, namespace: str, active: Sequence[str]) -> str:
        """Why no active broker may have the bundles of a namespace; empty where one may, or that is not known."""
        if not self.is_known:
            return ""
        policies = self.of(namespace)
        return "" if self._allowed(policies, tuple(active)) else _nobody(policies, tuple(active))

    def empty_policies(self, active: Sequence[str]) -> dict[str, str]:
        """Policies that match no active broker: by name why their namespaces have none."""
        brokers = tuple(active)
        empty = [policy for policy in self.policies if not policy.allows(brokers).any()]
        return {policy.name: _nobody((policy,), brokers) for policy in empty}

    def _of_each(self, namespaces: tuple[str, ...]) -> list[tuple[Policy, ...]]:
        covered = [(policy, policy.covers(namespaces)) for policy in self.policies]
        return [tuple(policy for policy, covers in covered if covers[at]) for at in range(len(namespaces))]

    def _allowed(self, policies: Sequence[Policy], active: tuple[str, ...]) -> frozenset[str]:
        able = np.ones(len(active), dtype=np.bool_)
        for policy in policies or self.policies:
            able &= policy.allows(active) if policies else ~policy.reserves(active)
        return frozenset(compress(active, able.tolist()))

    def pools(self, snapshot: Snapshot, active: Sequence[str]) -> tuple[Pool, ...]:
        """The bundles of namespaces that may be on the same brokers, together; none where there is no policy.

        Brokers outside a bundle's pool neither give nor take it, also the one that has it against its policy.
        """
        if not self.policies:
            return ()
        policies = self._of_each(snapshot.namespaces.names)
        brokers = {binding: self._allowed(binding, tuple(active)) for binding in dict.fromkeys(policies)}
        label: dict[frozenset[str], str] = {}
        for binding, allowed in brokers.items():
            label[allowed] = _joined(label.get(allowed), binding)
        ordered = sorted(label, key=label.__getitem__)
        number = {allowed: index for index, allowed in enumerate(ordered)}
        own = np.array([number[brokers[binding]] for binding in policies], dtype=np.int32)[snapshot.namespaces.of]
        return tuple(
            Pool(
                label[allowed],
                np.array([broker in allowed for broker in snapshot.brokers.ids], dtype=np.bool_),
                own == index,
                "" if allowed else _nobody(next(binding for binding in brokers if not brokers[binding]), tuple(active)),
            )
            for index, allowed in enumerate(ordered)
        )


PATTERNS_SHOWN = 3


def _nobody(policies: Sequence[Policy], active: tuple[str, ...]) -> str:
    """Why no active broker may have the namespaces that these policies bind."""
    empty = next((policy for policy in policies if not policy.allows(active).any()), None)
    if empty is not None:
        patterns = [shown(pattern.text) for pattern in (*empty.primaries, *empty.secondaries)]
        named = ", ".join(patterns[:PATTERNS_SHOWN]) + (", ..." if patterns[PATTERNS_SHOWN:] else "")
        compared = "patterns are compared with a broker's host, without its port"
        return f"isolation policy {empty.name} matches no active broker ({named or 'it has no pattern'}; {compared})"
    if policies:
        return f"isolation policies {', '.join(policy.name for policy in policies)} have no active broker in common"
    return "every active broker is primary of an isolation policy for others"


def _joined(label: str | None, policies: tuple[Policy, ...]) -> str:
    """The name of a pool: none where it is that of the namespaces without a policy, too."""
    if not policies or label == "":
        return ""
    return "+".join(sorted({*(label or "").split("+"), *(policy.name for policy in policies)} - {""}))


def _hosts(brokers: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(broker.rpartition(":")[0] for broker in brokers)


def _matching(patterns: Iterable[Pattern], names: tuple[str, ...]) -> BoolArray:
    matched = np.zeros(len(names), dtype=np.bool_)
    for pattern in patterns:
        matched |= pattern.matching(names)
    return matched


def parse_isolation(policies: Mapping[str, Any]) -> Isolation:
    """From the response of ``namespaceIsolationPolicies``. One policy that cannot be read makes all of them unknown."""
    parsed: list[Policy] = []
    for name, data in policies.items():
        try:
            parsed.append(_policy(name, data))
        except (KeyError, TypeError, AttributeError, ValueError, OverflowError) as error:
            why = str(error) if isinstance(error, ValueError) else f"{type(error).__name__} {error}"
            return Isolation(is_known=False, problem=f"isolation policy {name!r} is not understood: {why}")
    return Isolation(tuple(parsed))


def _policy(name: str, data: Mapping[str, Any]) -> Policy:
    """Pulsar stores the numbers of a fail-over policy as text."""
    parameters = (data.get("auto_failover_policy") or {}).get("parameters") or {}
    return Policy(
        name,
        tuple(map(Pattern, data["namespaces"])),
        tuple(map(Pattern, data["primary"])),
        tuple(map(Pattern, data.get("secondary") or ())),
        int(parameters.get("min_limit", 0)),
    )


@dataclass(frozen=True)
class Groups:
    """Anti-affinity groups of the namespaces asked about; one that is in neither collection is not known.

    ``grouped`` is the group of each namespace, in lower case as Pulsar compares them; ``members`` are the namespaces of
    each group, where all of them are known. ``domains`` are the brokers' failure domains, empty where those are off.
    ``unread`` are namespaces that were asked about in vain.
    """

    free: frozenset[str] = frozenset()
    grouped: Mapping[str, str] = field(default_factory=dict)
    members: Mapping[str, frozenset[str]] = field(default_factory=dict)
    domains: Mapping[str, str] = field(default_factory=dict)
    unread: frozenset[str] = frozenset()

    @property
    def asked(self) -> int:
        """Number of namespaces whose group was requested."""
        return len(self.free) + len(self.grouped) + len(self.unread)

    def and_those(self, others: Groups) -> Groups:
        """The groups of both; where both know a namespace, ``others`` count."""
        return Groups(
            self.free | others.free,
            {**self.grouped, **others.grouped},
            {**self.members, **others.members},
            {**self.domains, **others.domains},
            self.unread | others.unread,
        )

    def unknown(self, namespace: str) -> tuple[Reason, str] | None:
        """Why bundles of a namespace stay, whatever their destination; None if its policies are known."""
        group = self.grouped.get(namespace)
        if namespace in self.free or namespace in self.members.get(group or "", ()):
            return None
        if group is None:
            return Reason.POLICY_UNKNOWN, f"whether {namespace} belongs to an anti-affinity group could not be read"
        return Reason.POLICY_UNKNOWN, f"who else belongs to anti-affinity group {group!r} could not be read"


@dataclass(frozen=True)
class Policies:
    """Everything that says on which of the ``active`` brokers a bundle may be: on none that is ``drained``.

    Slow brokers are among the ``drained``; callers name those first. Isolation policies count them as active, as Pulsar
    does, which knows nothing of a drain. :meth:`brokers` keeps its ``answers``, which hold for the same isolation,
    ``active`` and ``drained``. ``consents`` are what properties of namespaces allow; None where they do not bind.
    ``unserved`` are namespaces that stay because clients of a moved bundle are not back, each with why.
    """

    isolation: Isolation = field(default_factory=Isolation)
    groups: Groups = field(default_factory=Groups)
    active: tuple[str, ...] = ()
    drained: frozenset[str] = frozenset()
    answers: dict[str, frozenset[str]] = field(default_factory=dict, repr=False, compare=False)
    consents: Consents | None = None
    unserved: Mapping[str, str] = field(default_factory=dict)

    def brokers(self, namespace: str) -> frozenset[str]:
        """The brokers on which isolation policies allow a namespace; worked out once for each."""
        if namespace not in self.answers:
            self.answers[namespace] = self.isolation.brokers(namespace, self.active) - self.drained
        return self.answers[namespace]

    def unmovable(self, namespace: str) -> tuple[Reason, str] | None:
        """Why bundles of a namespace stay, whatever their destination; None when they may move."""
        if namespace in self.unserved:
            return Reason.NOT_SERVED, self.unserved[namespace]
        return self.groups.unknown(namespace) or (self.consents.refusal(namespace) if self.consents else None)

    def kept(self, present: Collection[str], moving: Collection[str]) -> Iterator[Skip]:
        """The ``present`` namespaces whose bundles stay, or move last, and why; ``moving`` are those that move."""
        for namespace in sorted(self.unserved.keys() & set(present)):
            yield Skip(namespace, Reason.NOT_SERVED, self.unserved[namespace])
        if self.consents is not None:
            yield from self.consents.skips(present, moving)

    @property
    def low(self) -> frozenset[str]:
        """The namespaces whose bundles move only for what all others leave."""
        return self.consents.low if self.consents is not None else frozenset()

    def forbids(self, namespace: str, broker: str) -> tuple[Reason, str] | None:
        """Why isolation policies forbid a namespace on a broker; None if they allow it."""
        if not self.isolation.is_known:
            return Reason.POLICY_UNKNOWN, self.isolation.problem
        if broker in self.brokers(namespace):
            return None
        if broker in self.drained:
            return Reason.DRAINED, f"{broker} is being drained"
        if nobody := self.isolation.nobody(namespace, self.active):
            return Reason.ISOLATION_POLICY, nobody
        bound = ", ".join(policy.name for policy in self.isolation.of(namespace))
        if bound:
            return Reason.ISOLATION_POLICY, f"{namespace} may not be on {broker}: isolation policy {bound}"
        return Reason.ISOLATION_POLICY, f"{broker} is primary of an isolation policy for others"


# --- anti-affinity: bundles of a group of namespaces stay apart, by failure domain first, then by broker
# Source: LoadManagerShared.filterAntiAffinityGroupOwnedBrokers. A broker counts as many namespaces of the group as it
# has bundles of it; those of the least loaded domains, and among them the least loaded brokers, may take one more.

DEFAULT_DOMAIN = "default"
"""The domain of brokers that are in none, as in LoadManagerShared."""


class GroupSpread:
    """How the namespaces of the groups that a plan touches lie on the brokers, moved along with the plan."""

    def __init__(self, snapshot: Snapshot, policies: Policies) -> None:
        self._policies, self._groups = policies, policies.groups
        self._bundles: dict[str, dict[str, Counter[str]]] = _counted(snapshot, policies.groups)
        self._unheard = frozenset(policies.active).difference(snapshot.brokers.ids)

    def refusal(self, unload: Unload) -> tuple[Reason, str] | None:
        """Why a bundle may not go to its destination; None when its group allows it, or it has none."""
        namespace = bundle_namespace(unload.bundle)
        group = self._groups.grouped.get(namespace)
        if group is None or unload.destination is None:
            return None
        if (broker := self._uncounted(namespace)) is not None:
            detail = (
                f"{broker} gives no load report, so how many of anti-affinity group {group!r} its failure domain has "
                "is not known"
            )
            return Reason.ANTI_AFFINITY, detail
        best = self._best(group, unload.bundle, unload.source)
        if unload.destination in best:
            return None
        return Reason.ANTI_AFFINITY, (
            f"{unload.destination} has more of anti-affinity group {group!r} than {', '.join(sorted(best)) or 'none'}"
        )

    def best(self, bundle: str, source: str = "") -> frozenset[str] | None:
        """Where its group allows a bundle, once ``source``, if it has one, has let it go; None where no group binds it.

        Of a group whose members are not known nothing can be said: :meth:`~lbd.permit.policies.Groups.unknown` first.
        """
        group = self._groups.grouped.get(bundle_namespace(bundle))
        return None if group is None else self._best(group, bundle, source)

    def take(self, unload: Unload) -> None:
        """Count a move; the move of an unowned bundle has no source."""
        namespace = bundle_namespace(unload.bundle)
        counted = self._bundles.get(self._groups.grouped.get(namespace, ""))
        if counted is not None and unload.destination is not None:
            counted[unload.source][namespace] -= 1
            counted[unload.destination][namespace] += 1

    def _uncounted(self, namespace: str) -> str | None:
        """A broker may have more of a group than is known: without domains this does not exclude another broker."""
        unheard = self._unheard & self._policies.brokers(namespace) if self._groups.domains else frozenset[str]()
        return min(unheard, default=None)

    def _best(self, group: str, bundle: str, source: str) -> frozenset[str]:
        """Where Pulsar would place the bundle once its source has let it go."""
        namespace = bundle_namespace(bundle)
        leaving = Counter({source: self._bundles[group][source][namespace] == 1})
        counts = {
            broker: sum(number > 0 for number in self._bundles[group][broker].values()) - leaving[broker]
            for broker in self._policies.brokers(namespace)
        }
        return _least(_in_least_domains(counts, self._groups.domains))


def _counted(snapshot: Snapshot, groups: Groups) -> dict[str, dict[str, Counter[str]]]:
    """Bundles by group, broker and namespace."""
    counts: dict[str, dict[str, Counter[str]]] = {group: defaultdict(Counter) for group in groups.members}
    if not counts:
        return counts
    group_of = {namespace: group for group, names in groups.members.items() for namespace in names}
    names, of = snapshot.namespaces.names, snapshot.namespaces.of[snapshot.rows.bundle]
    grouped = np.flatnonzero(np.array([name in group_of for name in names], dtype=np.bool_)[of])
    for owner, namespace in zip(snapshot.rows.owner()[grouped].tolist(), of[grouped].tolist(), strict=True):
        counts[group_of[names[namespace]]][snapshot.brokers.ids[owner]][names[namespace]] += 1
    return counts


def _in_least_domains(counts: Mapping[str, int], domains: Mapping[str, str]) -> dict[str, int]:
    if not domains:
        return dict(counts)
    total: Counter[str] = Counter()
    for broker, count in counts.items():
        total[domains.get(broker, DEFAULT_DOMAIN)] += count
    least = _least(total)
    return {broker: count for broker, count in counts.items() if domains.get(broker, DEFAULT_DOMAIN) in least}


def _least(counts: Mapping[str, int]) -> frozenset[str]:
    fewest = min(counts.values(), default=0)
    return frozenset(name for name, count in counts.items() if count == fewest)
