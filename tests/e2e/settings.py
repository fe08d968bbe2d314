"""What is started and how: command lines and configuration files of ZooKeeper, bookie and brokers, as text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

CLUSTER = "c"
WEB_PORT = 18080
WEB_TLS_PORT = 18443
BROKER_PORT = 16650
BROKER_TLS_PORT = 16651
ZOOKEEPER_PORT = 12181
BOOKIE_PORT = 13181
STATS_SECONDS = 5

LOAD_MANAGERS = {
    "modular": "org.apache.pulsar.broker.loadbalance.impl.ModularLoadManagerImpl",
    "extensible": "org.apache.pulsar.broker.loadbalance.extensions.ExtensibleLoadManagerImpl",
    "simple": "org.apache.pulsar.broker.loadbalance.impl.SimpleLoadManagerImpl",
    "noop": "org.apache.pulsar.broker.loadbalance.NoopLoadManager",
}

TLS_ONLY = {"webServicePort": "", "brokerServicePort": "", "brokerClientTlsEnabled": "true"}
"""Of a cluster with TLS: brokers listen to nothing else, and are listed with their TLS port."""

AS_DELIVERED = {
    "loadBalancerSheddingEnabled": "true",
    "systemTopicEnabled": "true",
    "topicLevelPoliciesEnabled": "true",
}
"""What Pulsar does by default and most clusters of the tests do not: shed by itself, and keep topic policies."""

_OPENED = (
    "java.base/java.io",
    "java.base/java.util.zip",
    "java.base/java.nio",
    "java.base/sun.net",
    "java.base/jdk.internal.misc",
    "java.base/jdk.internal.platform",
    "java.management/sun.management",
    "jdk.management/com.sun.management.internal",
)
_JVM = (
    "-XX:+UseSerialGC",
    "-XX:-UsePerfData",
    "-Dio.netty.tryReflectionSetAccessible=true",
    "-Djute.maxbuffer=10485760",
    "-Djava.net.preferIPv4Stack=true",
    "-Dlog4j2.is.webapp=false",
)
_QUICK = "-XX:TieredStopAtLevel=1"
_LOGGING = """<Configuration status="WARN">
  <Appenders>
    <Console name="console" target="SYSTEM_OUT">
      <PatternLayout pattern="%d{ISO8601} [%t] %-5p %c{1} - %m%n"/>
    </Console>
  </Appenders>
  <Loggers><Root level="info"><AppenderRef ref="console"/></Root></Loggers>
</Configuration>
"""


How = tuple[tuple[str, ...], tuple[str, ...]]
"""A JVM's memory options, and its main class with arguments."""


@dataclass(frozen=True)
class Spec:
    """What kind of cluster a test needs; equal specs share one running cluster.

    The quick compiler brings a cluster up sooner, but its brokers go on using more CPU: tests that measure CPU or
    publish gaps for minutes want ``full_jit`` and a longer warm-up. ``java`` is a file of the folder ``java``
    here, which the brokers have on their class path.
    """

    version: str
    brokers: int = 3
    load_manager: str = "modular"
    tokens: bool = False
    tls: bool = False
    full_jit: bool = False
    settings: tuple[tuple[str, str], ...] = ()
    java: str = ""
    own: str = ""

    @property
    def tls_only(self) -> bool:
        """Whether brokers listen to nothing but TLS."""
        return self.tls and dict(self.settings).get("webServicePort") == ""

    def __str__(self) -> str:
        words = [self.version, *(["" if self.load_manager == "modular" else self.load_manager])]
        words += (
            ["tokens"] * self.tokens + ["tls"] * self.tls + ["full_jit"] * self.full_jit + ["set"] * bool(self.settings)
        )
        return "-".join(word for word in words if word)


def address(index: int) -> str:
    """The loopback address of the broker at this position."""
    return f"127.0.0.{index + 1}"


def broker_id(index: int, *, tls_only: bool = False) -> str:
    """The id under which Pulsar lists the broker: with the plain web port if there is one, also when TLS is on."""
    return f"{address(index)}:{WEB_TLS_PORT if tls_only else WEB_PORT}"


def java_command(java: str, lib: Path, work: Path, *, full_jit: bool, how: How) -> list[str]:
    """The command line of one JVM of the cluster."""
    memory, main = how
    compiler = [] if full_jit else [_QUICK]
    opened = [word for package in _OPENED for word in ("--add-opens", f"{package}=ALL-UNNAMED")]
    logging = f"-Dlog4j2.configurationFile={work / 'log4j2.xml'}"
    return [java, *_JVM, *compiler, *opened, logging, *memory, "-cp", f"{lib}/*:{work / 'classes'}", *main]


def zookeeper(work: Path) -> How:
    """JVM memory and main class with arguments of ZooKeeper."""
    memory = ("-Xmx128m", "-Dzookeeper.forceSync=no")
    return memory, ("org.apache.zookeeper.server.quorum.QuorumPeerMain", str(work / "zoo.cfg"))


def metadata_setup() -> How:
    """JVM memory and main class with arguments of the one-time cluster set-up."""
    arguments = {
        "--cluster": CLUSTER,
        "--metadata-store": f"zk:127.0.0.1:{ZOOKEEPER_PORT}",
        "--configuration-metadata-store": f"zk:127.0.0.1:{ZOOKEEPER_PORT}",
        "--web-service-url": f"http://127.0.0.1:{WEB_PORT}",
        "--broker-service-url": f"pulsar://127.0.0.1:{BROKER_PORT}",
    }
    words = tuple(word for pair in arguments.items() for word in pair)
    return ("-Xmx128m",), ("org.apache.pulsar.PulsarClusterMetadataSetup", *words)


def bookie(work: Path) -> How:
    """JVM memory and main class with arguments of the bookie."""
    memory = ("-Xmx192m", "-XX:MaxDirectMemorySize=128m")
    return memory, ("org.apache.bookkeeper.server.Main", "--conf", str(work / "bookie.conf"))


def broker(work: Path, index: int) -> How:
    """JVM memory and main class with arguments of the broker at this position."""
    memory = ("-Xms128m", "-Xmx384m", "-XX:MaxDirectMemorySize=256m")
    return memory, ("org.apache.pulsar.PulsarBrokerStarter", "--broker-conf", str(work / f"broker-{index}.conf"))


def write_files(work: Path, spec: Spec, security: Mapping[str, str]) -> None:
    """Every configuration file of the cluster, into its work directory."""
    (work / "log4j2.xml").write_text(_LOGGING)
    (work / "zoo.cfg").write_text(_lines(_zookeeper_settings(work)))
    (work / "bookie.conf").write_text(_lines(_bookie_settings(work)))
    for index in range(spec.brokers):
        values = _broker_settings(spec, index) | dict(security) | dict(spec.settings)
        (work / f"broker-{index}.conf").write_text(_lines(values))


def _lines(values: Mapping[str, str | float]) -> str:
    return "".join(f"{key}={value}\n" for key, value in values.items())


def _zookeeper_settings(work: Path) -> dict[str, str | float]:
    return {
        "tickTime": 2000,
        "dataDir": str(work / "zookeeper"),
        "clientPort": ZOOKEEPER_PORT,
        "clientPortAddress": "127.0.0.1",
        "maxClientCnxns": 0,
        "admin.enableServer": "false",
        "4lw.commands.whitelist": "dump",
    }


def _bookie_settings(work: Path) -> dict[str, str | float]:
    data = work / "bookie"
    return {
        "bookiePort": BOOKIE_PORT,
        "advertisedAddress": "127.0.0.1",
        "allowLoopback": "true",
        "metadataServiceUri": f"zk+hierarchical://127.0.0.1:{ZOOKEEPER_PORT}/ledgers",
        "journalDirectories": f"{data}/journal",
        "ledgerDirectories": f"{data}/ledgers",
        "indexDirectories": f"{data}/index",
        "ledgerStorageClass": "org.apache.bookkeeper.bookie.InterleavedLedgerStorage",
        "journalSyncData": "false",
        "journalMaxGroupWaitMSec": 1,
        "journalPreAllocSizeMB": 4,
        "journalMaxSizeMB": 64,
        "diskUsageThreshold": 0.99,
        "diskUsageWarnThreshold": 0.98,
        "httpServerEnabled": "false",
    }


def _broker_settings(spec: Spec, index: int) -> dict[str, str | float]:
    extensible = str(spec.load_manager == "extensible").lower()
    return {
        "clusterName": CLUSTER,
        "metadataStoreUrl": f"zk:127.0.0.1:{ZOOKEEPER_PORT}",
        "configurationMetadataStoreUrl": f"zk:127.0.0.1:{ZOOKEEPER_PORT}",
        "bindAddress": address(index),
        "advertisedAddress": address(index),
        "brokerServicePort": BROKER_PORT,
        "webServicePort": WEB_PORT,
        "managedLedgerDefaultEnsembleSize": 1,
        "managedLedgerDefaultWriteQuorum": 1,
        "managedLedgerDefaultAckQuorum": 1,
        "loadManagerClassName": LOAD_MANAGERS.get(spec.load_manager, spec.load_manager),
        "loadBalancerEnabled": "true",
        "loadBalancerSheddingEnabled": "false",
        "loadBalancerAutoBundleSplitEnabled": "false",
        "statsUpdateFrequencyInSecs": STATS_SECONDS,
        "statsUpdateInitialDelayInSecs": STATS_SECONDS,
        "loadBalancerReportUpdateMinIntervalMillis": 1000,
        "loadBalancerReportUpdateThresholdPercentage": 1,
        "loadBalancerReportUpdateMaxIntervalMinutes": 1,
        "loadBalancerHostUsageCheckIntervalMinutes": 1,
        "loadBalancerOverrideBrokerNicSpeedGbps": 1,  # without it 2.11 refuses to start on a virtual network card
        "forceDeleteNamespaceAllowed": "true",
        "systemTopicEnabled": extensible,
        "topicLevelPoliciesEnabled": extensible,
        "transactionCoordinatorEnabled": "false",
        "functionsWorkerEnabled": "false",
        "webSocketServiceEnabled": "false",
        "numIOThreads": 2,
        "numHttpServerThreads": 8,
        "numOrderedExecutorThreads": 2,
        "managedLedgerCacheSizeMB": 16,
    }
