"""The hub that a model may lie on: whether it answers, asked once before the library asks for minutes."""

from typing import NamedTuple

PATIENCE = 5.0  # seconds; the library asks again and again for half a minute, file by file


class Hub(NamedTuple):
    """address: of the hub. cache: where what was fetched before is kept."""

    address: str
    cache: str

    def away(self) -> str | None:
        """Why nothing can be fetched, as a part of a sentence; None where it answers, whatever it says."""
        from huggingface_hub import constants
        from huggingface_hub.utils import get_session

        if constants.is_offline_mode():
            return "HF_HUB_OFFLINE is set"
        try:
            get_session().head(self.address, timeout=PATIENCE)
        except Exception as problem:  # of whichever client the library uses
            said = str(problem).strip().splitlines() or [type(problem).__name__]
            return f"{self.address} does not answer ({said[0][:100]})"
        return None


def hub() -> Hub:
    """The one that the library asks (HF_ENDPOINT, HF_HOME)."""
    from huggingface_hub import constants

    return Hub(str(constants.ENDPOINT), str(constants.HF_HUB_CACHE))
