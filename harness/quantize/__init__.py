"""Quantizers: keys and values as codes, scales and zero points. One file, one YAML per variant."""
