"""Build the format that a `save` option, or a snapshot, names."""

from typing import Any

from harness import config, given, variants
from harness.config import SaveConfig
from harness.errors import Untrusted, UntrustedPlugin
from harness.save.base import Format


def names() -> list[str]:
    """Every format that can be chosen, from inside and outside."""
    return variants.options("save")


def shipped() -> list[str]:
    """Every format that a snapshot may name without saying who wrote it."""
    return variants.options("save", variants.conf_dir())


def format_of(settings: SaveConfig) -> Format:
    """The format that `settings` (an option of `save`) declares. Raises ConfigProblem."""
    kind = given.classes.get(str(getattr(settings, variants.TARGET, None)))
    kind = kind or variants.variant("save", settings, Format)
    return kind(config.completed("save", settings))


def target_of(settings: SaveConfig) -> str | None:
    """`module.Class` of a format from outside, as a snapshot records it; None for our own."""
    target = variants.target("save", settings)
    if target and target not in given.classes:
        variants.vouch(target)  # whoever writes in it may read what was written
    return target


def reader(manifest: dict[str, Any], where: str) -> Format:
    """The format that reads the payload of a validated manifest. where: the snapshot, for messages.

    One from outside is imported only where `plugins.trust` names its module; Untrusted otherwise.
    """
    name, target = manifest["payload_format"], manifest.get("payload_target")
    if target is None:
        return variants.shipped("save", name)()
    if kind := given.serving(target):
        mine: Format = kind()
        return mine
    module, _, called = target.rpartition(".")
    if module == "__main__":
        raise Untrusted(
            f"the snapshot at {where} names save={name}, which is {called} of a script that does not run here. In Python "
            f"give a class of that name, load_state(source, format={called}); on the command line nothing can read it "
            "before Python has saved it again in another format."
        )
    try:
        variants.refuse_untrusted(f"the snapshot at {where}", f"save={name}", target)
    except UntrustedPlugin as problem:
        said = f"{problem} In Python load_state takes the class itself, as `format`."
        raise Untrusted(said) from None
    return variants.imported(f"the snapshot's save={name}", target, Format)()
