"""The ``notify:`` section."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from lbd.file_settings import SecretPath
from lbd.notify.events import Kind
from lbd.section import Section


class NotifySettings(Section):
    """A webhook that announces plans, moves and trouble to people. Off while ``url_file`` is null."""

    url_file: SecretPath | None = Field(
        None,
        description="File with the web address of the webhook, which is a secret: whoever knows it can post there. "
        "lbd reads it again when it changes",
    )
    format: Literal["slack", "json"] = Field(
        "slack",
        description="slack posts one text, as incoming webhooks of Slack and compatible receivers take it. json posts "
        "the events with all their fields",
    )
    events: tuple[Kind, ...] = Field(
        ("plan", "failure", "blocked", "drain", "leader", "pause"),
        description="Events that are sent. plan: a plan waits for approval, or would be made with mode: observe. move: "
        "bundles were moved. failure: a planned move was refused, or did not land on its destination. blocked: brokers "
        "stay too far apart for 15 minutes, and the end of that. drain: a drain left bundles. leader: this lbd leads, "
        "or leads no more. pause: a pause without end has lasted for 4 hours. move is not among the defaults: "
        "moves that land need nobody",
    )
    min_interval_seconds: float = Field(
        60,
        ge=1,
        le=86_400,
        description="Seconds between two messages. Events that come meanwhile are one message. Slack takes one message "
        "a second",
    )
