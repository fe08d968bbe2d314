"""What the settings of every strategy have in common, whatever they are."""

from __future__ import annotations

from typing import ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Field

from lbd.model import Hits


class StrategySettings(BaseModel):
    """Settings of one strategy; ``name`` is what ``strategy:`` takes.

    ``assumed`` are the words for what :meth:`eager` takes as given. ``placed_by`` is the placement that goes with a
    strategy that names no destination; None: it names them. With ``wants_slopes`` it is told what traffic costs each
    broker (:class:`~lbd.model.Slopes`).
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    name: ClassVar[str]
    assumed: ClassVar[str] = ""
    placed_by: ClassVar[str | None] = None
    wants_slopes: ClassVar[bool] = False

    def stock(self) -> Self:
        """The same numbers with Pulsar's own behaviour everywhere."""
        return self

    def eager(self) -> Self:
        """As if what is seen now had lasted: what would be unloaded if the imbalance lasts."""
        return self

    @property
    def wanted_hits(self) -> Hits:
        """How many samples in a row a strategy wants before it fires."""
        return Hits(1, 1)


class ShedderSettings(StrategySettings):
    """Where the shedders that look at one broker alone differ between ``profile: live`` and stock.

    The placement is the one that PIP-364 recommends with it; Pulsar's default for all.
    """

    placed_by = "least-long-term-message-rate"

    sole_bundle: Literal["stay", "move"] = Field(
        "stay",
        description="a broker's only bundle: Pulsar lets it stay, too, but counts the broker's own heartbeat bundles, "
        "beside which it moves (stock: move)",
    )
    idle_bundles: Literal["stay", "move"] = Field(
        "stay",
        description="bundles without traffic: moving them changes nothing, but Pulsar takes one where no other is left "
        "(stock: move)",
    )

    def stock(self) -> Self:
        """The same numbers; what Pulsar counts as a bundle counts."""
        return self.model_copy(update={"sole_bundle": "move", "idle_bundles": "move"})
