"""Permitting: which bundles may move (before a strategy is asked), and how many (afterwards). Pure."""
