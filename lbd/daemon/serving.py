"""The daemon's side of the API: what is shown after each turn, and what the API asks of the daemon."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import structlog

from lbd.api.board import Board, Published
from lbd.api.server import Server
from lbd.api.shapes import Drained
from lbd.api.token import TokenFile
from lbd.daemon.draining.showing import plan_of, show_drain, show_fill
from lbd.daemon.picking import Picker
from lbd.daemon.planning import Planner
from lbd.daemon.telling import move_line, with_leader
from lbd.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from lbd.api.shapes import DrainPlan, Placement, Plan
    from lbd.config import Settings
    from lbd.cycle import CycleRecord
    from lbd.daemon.engine import Engine
    from lbd.model import Outcome, Skip
    from lbd.record.status import Status


class Serving:
    """The API beside the turns of an engine, where ``api.enabled``. A port that is taken costs the API, not the turns.

    ``silent_seconds`` is how long ago a turn or move ended, ``patience_seconds`` how much of that is too much.
    """

    def __init__(
        self, engine: Engine, silent_seconds: Callable[[], float], patience_seconds: Callable[[], float]
    ) -> None:
        self.board = Board()
        self.silent_seconds, self.patience_seconds = silent_seconds, patience_seconds
        self._engine = engine
        self._server: Server | None = None
        self._picker, self._planner = self._asked()
        self._trouble, self._token = "", TokenFile(None)
        engine.draining.on_work = lambda work: self.board.events.tell("drain", Drained(work.broker, work))

    @property
    def settings(self) -> Settings:
        """Those in force."""
        return self._engine.settings

    @property
    def state_dir(self) -> Path:
        """What is kept."""
        return self.settings.state_dir

    @property
    def url(self) -> str | None:
        """Where it listens, None where it does not."""
        return self._server.url if self._server is not None else None

    def now(self) -> float:
        """Epoch seconds, by the daemon's clock."""
        return self._engine.timebase.now()

    def pick_at_once(self, text: str, strategy: str) -> Placement | None:
        """Where one bundle, or that of a topic, should go; None where a broker must be asked first."""
        return self._picker.pick_at_once(text, strategy)

    def pick(self, published: Published, text: str, strategy: str) -> Placement:
        """Where one bundle, or that of a topic, should go."""
        return self._picker.pick(published, text, strategy)

    def plan(self, published: Published) -> Plan:
        """What would be unloaded if the imbalance lasts."""
        return self._planner.plan(published)

    def planned(self, name: str) -> Plan | None:
        """A plan that was shown lately."""
        return self._planner.find(name)

    def show_drain(self, broker: str) -> DrainPlan:
        """Whether a broker can be spared, by a look of its own at the cluster."""
        return plan_of(show_drain(self.settings, broker, self._engine.looking))

    def show_fill(self, broker: str) -> DrainPlan:
        """What a broker would be given, by a look of its own at the cluster."""
        return plan_of(show_fill(self.settings, broker, self._engine.looking))

    def start(self) -> None:
        """Listen, where settings want it."""
        self._trouble = ""
        if not self.settings.api.enabled:
            return
        self._token = TokenFile(self.settings.api.token_file)
        try:
            self._server = Server(self)
        except UsageError as error:
            self._trouble = str(error)
            structlog.get_logger().error("no API; lbd goes on without it", why=self._trouble)

    def stop(self) -> None:
        """Answer nothing any more."""
        self._end()
        self._picker.close()

    def take(self, before: Settings) -> None:
        """The engine's settings have changed from these."""
        picker = self._picker
        self._picker, self._planner = self._asked()
        picker.close()
        if self.settings.api != before.api or self._trouble or self.settings.api.secure:  # certificates are renewed
            self._end()
            self.start()

    def _asked(self) -> tuple[Picker, Planner]:
        """Who answers, by the settings in force; of brokers that do not they know what the turns know."""
        return Picker(self.settings, self.now, self._engine.silences), Planner(self._engine)

    def _end(self) -> None:
        if self._server is not None:
            self._server.stop()
        self._server = None

    def publish(self, record: CycleRecord, status: Status) -> Status:
        """Show a turn; returns its status with what there is to say of the API."""
        token = self._token.trouble if self._server is not None else ""
        warnings = [*status.warnings, *filter(None, (self._trouble, token))]
        status = msgspec.structs.replace(status, api=self.url, warnings=warnings)
        published = Published(status, record, self.settings)
        self.board.publish(published)
        self._picker.published(published)
        return status

    def led(self) -> Status | None:
        """Show who leads by now; the status of the last turn with that, None before the first."""
        last = self.board.last
        return None if last is None else self.board.again(with_leader(last.status, self._engine.leading)).status

    def moved(self, ended: Outcome | Skip) -> None:
        """A move has ended."""
        sentence, facts = move_line(ended)
        self.board.moved(ended, {"sentence": sentence, **facts})
