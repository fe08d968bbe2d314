"""Checks of ``lbd doctor``: the cluster, lbd's settings and its state. Read-only."""
