"""Where an audit keeps the files that it compared, beside its report."""


def evidence(point: str, side: str, name: str) -> str:
    """The name of the copy of the file `name` of a point. side: `recorded` or `again`."""
    return f"evidence-{point}-{side}-{name}".replace("/", "_")
