"""Operations that people order beside the turns: placements, splits, drains, fills, dry-runs."""
