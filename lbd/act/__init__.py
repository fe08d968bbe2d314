"""Acting: each unload ends in one proven outcome."""
