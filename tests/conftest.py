"""What holds for all tests."""

from hypothesis import settings

settings.register_profile("lbd", deadline=None)
settings.load_profile("lbd")
"""How long one example takes says nothing on a machine that runs real brokers beside it."""
