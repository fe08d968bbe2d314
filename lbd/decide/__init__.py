"""Deciding: value in, value out. No clock, no random, no I/O, no logger; import-linter holds it."""
