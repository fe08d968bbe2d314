"""History: what every round said, what was decided on it and what became of it, as Parquet by day, for learning.

Nothing depends on it: up to ten minutes of it are lost with a kill, and what cannot be kept is said.
"""

FOLDER = "history"
