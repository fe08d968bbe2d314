"""Permitting: who may move (before a strategy is asked) and how much (after it answered). Pure."""
