"""The inside of the traffic process: paced producers and checking consumers on the real client library."""

from __future__ import annotations

import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import pulsar

from tests.e2e.checker import Result, Stream, summarise

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tests.e2e.traffic import Plan

TICK_SECONDS = 0.005
SETTLE_SECONDS = 0.5
SEND_TIMEOUT_SECONDS = 120
_LONGEST_BURST_SECONDS = 0.25


class Flow:
    """One producer on one topic, with its rate and what is due."""

    def __init__(self, stream: Stream, producer: pulsar.Producer, rate: float, size: int) -> None:
        self.stream = stream
        self.rate = rate
        self.due = 0.0
        self._producer = producer
        self._size = size
        self._head = f"{stream.topic} {stream.client} "

    def send_due(self, passed_seconds: float) -> None:
        """Send what this much time has earned; a late loop is forgiven rather than made up for in one burst."""
        self.due += self.rate * min(passed_seconds, _LONGEST_BURST_SECONDS)
        while self.due >= 1.0:
            self.due -= 1.0
            number = self.stream.next_number()
            text = f"{self._head}{number} ".encode()
            self._producer.send_async(text.ljust(self._size, b"."), partial(self._answered, number, time.monotonic()))

    def _answered(self, number: int, sent_at: float, result: pulsar.Result, _: object) -> None:
        error = None if result == pulsar.Result.Ok else str(result)
        self.stream.on_answer(number, sent_at, time.monotonic(), time.time(), error)


class Load:
    """All clients of the process and the one thread that paces them."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.misrouted = 0
        self.started = time.monotonic()
        self.flows: list[Flow] = []
        self._streams = {
            (topic, client): Stream(topic, client, plan.clients)
            for topic in plan.rates
            for client in range(plan.clients)
        }
        self._clients = [self._connect() for _ in range(plan.clients)]
        self._consumers: dict[str, list[pulsar.Consumer]] = {topic: [] for topic in plan.rates}
        self._stopping = threading.Event()
        self._pacer = threading.Thread(target=self._pace, name="pacer")

    def start(self) -> None:
        """Subscribe first, so that nothing is sent unseen; then produce."""
        for client, connection in enumerate(self._clients):
            for topic in self.plan.rates:
                self._consumers[topic].append(self._subscribe(connection, client, topic))
        for client, connection in enumerate(self._clients):
            for topic, rate in self.plan.rates.items():
                producer = self._produce(connection, topic)
                self.flows.append(Flow(self._streams[topic, client], producer, rate, self.plan.size))
        for position, flow in enumerate(self.flows):
            flow.due = position / len(self.flows)  # spread over the period instead of all at once
        self.started = time.monotonic()
        self._pacer.start()

    def set_rates(self, rates: dict[str, float]) -> None:
        """Change the rate of some topics."""
        for flow in self.flows:
            flow.rate = rates.get(flow.stream.topic, flow.rate)

    def set_consuming(self, topics: Iterable[str], consuming: bool) -> None:
        """Stop or resume the consumers of some topics; what is sent meanwhile waits in the broker."""
        for topic in topics:
            for consumer in self._consumers[topic]:
                (consumer.resume_message_listener if consuming else consumer.pause_message_listener)()

    def snapshot(self) -> Result:
        """What became of the messages so far (some are still under way, so `lost` may be transient)."""
        return summarise(list(self._streams.values()), self.misrouted, time.monotonic() - self.started)

    def finish(self, drain_seconds: float) -> Result:
        """Stop sending, wait until everything has been answered and has arrived or the time is up, and sum up."""
        seconds = time.monotonic() - self.started
        self._stopping.set()
        self._pacer.join()
        self.set_consuming(self.plan.rates, consuming=True)
        deadline = time.monotonic() + drain_seconds
        _wait(lambda: all(stream.sent == stream.answered for stream in self._streams.values()), deadline)
        _wait(lambda: not any(stream.lost() for stream in self._streams.values()), deadline)
        time.sleep(SETTLE_SECONDS)  # late duplicates
        return summarise(list(self._streams.values()), self.misrouted, seconds)

    def close(self, timeout_seconds: float = 5.0) -> None:
        """Close the clients; one that cannot reach its broker is left to the end of the process."""
        closers = [threading.Thread(target=client.close, daemon=True) for client in self._clients]
        for closer in closers:
            closer.start()
        deadline = time.monotonic() + timeout_seconds
        for closer in closers:
            closer.join(max(0.0, deadline - time.monotonic()))

    def _pace(self) -> None:
        last = time.monotonic()
        while not self._stopping.wait(TICK_SECONDS):
            now = time.monotonic()
            for flow in self.flows:
                flow.send_due(now - last)
            last = now

    def _connect(self) -> pulsar.Client:
        level = pulsar.LoggerLevel.Info if self.plan.log_connections else pulsar.LoggerLevel.Warn
        options: dict[str, Any] = {"logger": pulsar.FileLogger(level, self.plan.log)}
        if self.plan.token_file:
            options["authentication"] = pulsar.AuthenticationToken(lambda: _read(self.plan.token_file))
        if self.plan.ca_file:
            options["tls_trust_certs_file_path"] = self.plan.ca_file
        return pulsar.Client(self.plan.service_url, operation_timeout_seconds=60, **options)

    def _subscribe(self, connection: pulsar.Client, client: int, topic: str) -> pulsar.Consumer:
        return connection.subscribe(
            topic,
            f"check-{client}",
            initial_position=pulsar.InitialPosition.Earliest,
            message_listener=partial(self._arrived, topic, client),
        )

    def _produce(self, connection: pulsar.Client, topic: str) -> pulsar.Producer:
        return connection.create_producer(
            topic,
            batching_enabled=False,
            max_pending_messages=100_000,
            max_pending_messages_across_partitions=100_000,
            send_timeout_millis=SEND_TIMEOUT_SECONDS * 1000,
        )

    def _arrived(self, topic: str, consumer: int, handle: pulsar.Consumer, message: pulsar.Message) -> None:
        stated, client, number, _ = message.data().split(b" ", 3)
        if stated.decode() == topic:
            self._streams[topic, int(client)].on_message(consumer, int(number))
        else:
            self.misrouted += 1
        handle.acknowledge(message)


def _wait(condition: Callable[[], bool], deadline: float) -> None:
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.05)


def _read(file: str) -> str:
    with open(file) as opened:  # noqa: PTH123 - called from a thread of the C++ client
        return opened.read().strip()
