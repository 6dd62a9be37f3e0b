"""A text file of the user's, as it stands."""

import shlex
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from pathlib import Path

from harness.errors import InputProblem


def read(path: str) -> str:
    """The text in `path` without a byte order mark, its line ends as they are. Raises InputProblem for a file that
    cannot be read or is not UTF-8, with the command that converts it."""
    try:
        return Path(path).expanduser().read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        raise InputProblem(f"prompt.path={path}: there is no such file. Check the path.") from None
    except OSError as problem:
        raise InputProblem(f"prompt.path={path} cannot be read: {problem.strerror}.") from None
    except UnicodeDecodeError as problem:
        place = Path(path)
        wide = problem.object.startswith((BOM_UTF16_LE, BOM_UTF16_BE))
        names = (path, str(place.with_name(f"{place.stem}.utf8{place.suffix}")))
        read, written = map(shlex.quote, names)
        raise InputProblem(
            f"prompt.path={path} is not UTF-8: byte {problem.start} is "
            f"0x{problem.object[problem.start]:02x}. Convert it: "
            f"iconv -f {'UTF-16' if wide else 'LATIN1'} -t UTF-8 {read} > {written}"
        ) from None
