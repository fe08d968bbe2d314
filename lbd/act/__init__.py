"""Acting: each unload ends in one verified outcome."""
