"""How the admin API is asked: at the first address that answers, at a broker's own one, and what an answer must be."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import msgspec

from lbd.errors import AdminError, ObserveError
from lbd.pulsar import paths
from lbd.pulsar.http import Answer, Http, address_of, base_of, host_of

if TYPE_CHECKING:
    from lbd.pulsar.settings import PulsarSettings
    from lbd.pulsar.silence import Silences


Found = TypeVar("Found")


class _Addresses(msgspec.Struct, rename="camel"):
    web_service_url: str | None = None
    web_service_url_tls: str | None = None


class _Refusal(msgspec.Struct):
    reason: str = ""


class Asking:
    """A cluster's brokers, asked at the first of ``admin_urls`` that answers, or one by one.

    Several that share ``silences`` know of each other's brokers that do not answer.
    """

    def __init__(self, settings: PulsarSettings, silences: Silences | None = None) -> None:
        self.settings = settings
        self.http, self._shared = Http(settings, silences), silences is not None
        self._urls = list(settings.admin_urls)
        self._secure = self._urls[0].startswith("https:")
        self._cluster = settings.cluster
        self._active: list[str] = []
        self._failed: set[str] = set()
        self._bases: dict[str, str] = {}
        self._transfers: bool | None = None

    @property
    def cluster(self) -> str:
        """The cluster's name: the configured one, else what the broker that answers says of itself."""
        if self._cluster is None:
            self._cluster = self.runtime_configuration().get("clusterName") or self._only_cluster()
        return self._cluster

    def runtime_configuration(self, broker: str | None = None) -> dict[str, str]:
        """Effective configuration of one broker (None: of the one that answers)."""
        path = paths.RUNTIME_CONFIGURATION
        answer = self._any(path) if broker is None else self._at(broker, path)
        return {key: value for key, value in self._json(answer, dict[str, str | None]).items() if value is not None}

    @property
    def transfers(self) -> bool:
        """Whether brokers hand bundles over themselves (the extensible manager): no leader, no lookup places one."""
        if self._transfers is None:
            self._transfers = paths.is_extensible(self.runtime_configuration())
        return self._transfers

    @transfers.setter
    def transfers(self, found: bool) -> None:
        """As seen by who has just asked: the cluster's load manager may have been changed since."""
        self._transfers = found

    def _only_cluster(self) -> str:
        names = [name for name in self._json(self._any(paths.CLUSTERS), list[str]) if name != "global"]
        if len(names) != 1:
            raise ObserveError(f"pulsar.cluster is not set and the brokers know {names}; set it to one of them")
        return names[0]

    def active_brokers(self) -> list[str]:
        """Ids (``host:webPort``) of all active brokers, sorted; from now on their hosts are trusted."""
        found = sorted(self._json(self._any(paths.brokers(self.cluster)), list[str]))
        hosts = {host_of(broker) for broker in found}
        self.http.trust(hosts)
        self.http.silences.listed(found, hosts)
        self._active = found
        self._bases = {broker: base for broker, base in list(self._bases.items()) if broker in found}
        return found

    def base(self, broker: str) -> str:
        """Where to reach a broker. Over https its id still has the plain port, so the address is asked for once."""
        if not self._secure:
            return f"http://{broker}"
        if broker not in self._bases:
            self._bases[broker] = self._secure_base(broker)
        return self._bases[broker]

    def silent_since(self, broker: str) -> float | None:
        """Since when a broker answers nothing (epoch seconds); None for one that answers, or was not asked yet."""
        base = self._bases.get(broker, "") if self._secure else f"http://{broker}"
        return self.http.silences.since(base)

    def mistrust(self, broker: str) -> None:
        """Take a broker for silent that did not answer a lookup, though it may answer else."""
        self.http.silences.mistrust(self.base(broker), broker)

    def close(self) -> None:
        """End idle connections, and ask silent brokers no more; where others know of those, that is theirs to end."""
        self.http.close()
        if not self._shared:
            self.http.silences.close()

    def _secure_base(self, broker: str) -> str:
        base = self._admin_url_of(broker) or self._redirected(broker)
        if not base.startswith("https:"):
            raise ObserveError(f"{broker} is reached at {base}, wanted https: a token is not sent in the clear")
        return base

    def _admin_url_of(self, broker: str) -> str | None:
        """Its address where one of ``admin_urls`` leads to this very broker; None where none does, or it does not tell.

        Its load report tells. It is not asked for what it owns, as others are to be sent on to it: that can hang it
        (see :meth:`~lbd.pulsar.admin.Admin.owned`).
        """
        for url in self._urls:
            if host_of(url) == host_of(broker) and not self.transfers:
                try:
                    found = self._told_base(broker, url)
                except AdminError:
                    continue  # another URL may answer, and tells why where none does
                if found is not None:
                    return found
        return None

    def _redirected(self, broker: str) -> str:
        answer = self._any(paths.owned_namespaces(self.cluster, broker), expect={200, 307}, hops=0)
        return base_of(answer.location) if answer.location else self._own_base(broker, answer.base)

    def _own_base(self, broker: str, base: str) -> str:
        """The https address that a broker gives itself; ``base`` answered for it, and may stand before several.

        Where brokers have no load report to give, only an address on the broker's own host is known to be its own.
        """
        if self.transfers and host_of(broker) == host_of(base):
            return base
        found = self._told_base(broker, base)
        if found is None:
            raise ObserveError(
                f"{base} stands before several brokers; pulsar.admin_urls wants the brokers' own addresses"
            )
        return found

    def _told_base(self, broker: str, base: str) -> str | None:
        """The address that who answers at ``base`` gives itself; None where that is another broker."""
        report = self._json(self._expected(self.http.send("GET", base + paths.LOAD_REPORT), None), _Addresses)
        if broker not in {address_of(url) for url in (report.web_service_url, report.web_service_url_tls) if url}:
            return None
        return base_of(report.web_service_url_tls) if report.web_service_url_tls else base

    def _at(self, broker: str, path: str, expect: set[int] | None = None) -> Answer:
        return self._expected(self.http.send("GET", self.base(broker) + path), expect)

    def _any(
        self,
        path: str,
        expect: set[int] | None = None,
        hops: int = 5,
        method: str = "GET",
        content: bytes | None = None,
    ) -> Answer:
        """Ask the admin URLs in turn until one answers."""
        return self._first(self._urls, path, expect or {200}, hops, method, content)

    def _first(
        self,
        bases: list[str],
        path: str,
        expect: set[int],
        hops: int,
        method: str = "GET",
        content: bytes | None = None,
    ) -> Answer:
        """The first good answer, in the order given, but those that failed the last time they were asked come last.

        A broker that cannot be reached, or answers 5xx, is passed over.
        """
        failures: list[AdminError] = []
        for base in sorted(bases, key=self._failed.__contains__):
            try:
                answer = self._expected(self.http.send(method, base + path, hops=hops, content=content), expect, method)
            except AdminError as error:
                if error.status is not None and error.status < 500:
                    raise
                self._failed.add(base)
                failures.append(error)
            else:
                self._failed.discard(base)
                return answer
        if len(failures) == 1:
            raise failures[0]
        status = failures[0].status if failures else None
        raise AdminError("; ".join(str(error) for error in failures) or "no broker to ask", status=status)

    def _expected(self, answer: Answer, expect: set[int] | None, method: str = "GET") -> Answer:
        if answer.status not in (expect or {200}):
            raise self._unexpected(answer, expect or {200}, method)
        return answer

    def _unexpected(self, answer: Answer, expect: set[int], method: str = "GET") -> AdminError:
        wanted = "/".join(str(status) for status in sorted(expect))
        told = f"HTTP {answer.status}{reason_of(answer)}, wanted {wanted}{_advice(answer)}"
        return AdminError(f"{method} {answer.url.partition('?')[0]}: {told}", status=answer.status)

    @staticmethod
    def _json(answer: Answer, wanted: type[Found]) -> Found:
        try:
            return msgspec.json.decode(answer.body, type=wanted)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            begins = f"the answer cannot be read, it begins with {answer.body[:40]!r}: {error}"
            raise AdminError(f"GET {answer.url}: {begins}; is this a broker's web address?") from error


def reason_of(answer: Answer) -> str:
    """The ``reason`` of an error body, first line, cut short; nothing for HTML and empty bodies.

    All else is skipped, not built: garbage that is collected deep in a nested answer has no stack left to close a
    connection by.
    """
    try:
        reason = msgspec.json.decode(answer.body, type=_Refusal).reason
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return ""
    lines = [line.strip() for line in reason.splitlines() if line.strip() and not line.strip().startswith("---")]
    return f" ({lines[0][:200]})" if lines else ""


def _advice(answer: Answer) -> str:
    status = answer.status
    if status == 404 and answer.url.endswith(paths.RUNTIME_CONFIGURATION):
        return "; is this a broker's web address?"
    if status in {401, 403}:
        return "; the token is missing, wrong, or not a superuser's (pulsar.token_file)"
    return "; brokers take this setting only from broker.conf, with a restart" if status == 412 else ""
