"""The error that users of records meet, and the checks of settings that raise it."""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from coaltree.errors import InputError

HIDDEN = "***"
_LOGIN = re.compile(r"(?<=://)[^\s'\"]*@")
_SECRET = re.compile(
    r"(\b(?:\w*(?:pass|pwd|secret|token|key|credential)\w*)\s*=\s*)(\"[^\"]*\"|'[^']*'|[^\s&;,'\")]+)", re.I
)


def without_credentials(text: str) -> str:
    """Return a text with logins in URLs, and values of keys such as password, hidden."""
    return _SECRET.sub(rf"\g<1>{HIDDEN}", _LOGIN.sub(f"{HIDDEN}@", text))


class RecordsError(InputError):
    """Something in the user's files or settings is wrong; the message says what, and how to fix it.

    Credentials that it would repeat, as from the URL of a connection, are hidden.
    """

    def __init__(self, message: str) -> None:
        super().__init__(without_credentials(message))


def read_toml(file: Path, what: str) -> dict[str, Any]:
    """Return the content of a TOML file; `what` describes the file in error messages."""
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise RecordsError(f"{what} {file} does not exist.") from None
    except IsADirectoryError:
        raise RecordsError(f"{what} {file} is a folder; name a TOML file.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise RecordsError(f"{what} {file} is not valid TOML: {error}.") from error


def check_keys(given: Iterable[str], known: Iterable[str], where: str) -> None:
    """Refuse an unknown key, suggesting the closest known one."""
    known = list(known)
    for key in given:
        if key not in known:
            near = difflib.get_close_matches(str(key), known, n=1)
            hint = f"Did you mean {near[0]!r}?" if near else f"Known: {', '.join(map(str, known))}."
            raise RecordsError(f"{where}: {key!r} is not known. {hint}")


def as_zone(name: str, where: str = "timezone") -> ZoneInfo:
    """Return a time zone by its name; `where` gives its place in error messages."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise RecordsError(f"{where}={name!r} is not a known zone; write it like Europe/Paris or UTC.") from error


def need(module: str) -> Any:
    """Import an optional dependency of records, or say how to get it."""
    import importlib

    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(f"coaltree.records needs {module}: pip install 'coaltree[records]'.") from error
