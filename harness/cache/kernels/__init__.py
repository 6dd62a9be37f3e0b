"""How scores and weighted values are computed, per device. A kernel knows no masks and no caches."""
