"""What the operators of a fake cluster have set."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass
class Policies:
    """It may be changed at any time.

    ``isolation``: policies by name, as JSON; ``groups``: the anti-affinity group of a namespace; ``domains``: the
    brokers of a failure domain.
    """

    isolation: dict[str, Any] = field(default_factory=dict)
    groups: dict[str, str] = field(default_factory=dict)
    domains: dict[str, list[str]] = field(default_factory=dict)
