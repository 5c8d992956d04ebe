"""What of a study's settings and files is published: a list of files, and a config without logins and local folders."""

from __future__ import annotations

import datetime
import json
import re
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

from coaltree.records.bundle import EXTERNAL, FILE
from coaltree.records.errors import HIDDEN, read_toml, without_credentials

CONFIG = "config.toml"
_PARTS = ("cross-validation", "temporal", EXTERNAL)
_TABLES = (
    *("attrition", "attrition-1", "attrition-2", "outcomes", "factors", "auc", "nodes", "cost", "table-one"),
    *("subgroups", "drivers", "node-models"),
    *(f"{kind}-{part}" for kind in ("scores", "summary", "calibration", "differences") for part in _PARTS),
)
_FIGURES = (
    *("tree", "cost", "outcomes-roc", "outcomes-precision", "outcomes-calibration", "outcomes-benefit"),
    *(f"{kind}-{part}" for kind in ("auc", "calibration") for part in _PARTS),
)
# Every file that a folder to be shared may have.
PUBLISHED = frozenset(
    [*("report.html", "summary.json", "tree.nwk", CONFIG, FILE)]
    + [f"{name}.csv" for name in _TABLES]
    + [f"{name}.png" for name in _FIGURES]
)
_PATHS = {("data", "path"), ("outcomes", "file"), ("outcomes", "labels"), ("cost", "prices"), ("cohort", "thresholds")}


def published_config(file: str | Path) -> str:
    """Return the settings of a study as TOML that can be passed on.

    Comments are dropped. Of the URL of a connection only the kind of engine is kept, and of a path that
    leads out of the config's folder the name.
    """
    content = read_toml(Path(file), "the config")
    lines = [f"{_word(key)} = {_toml(value)}" for key, value in content.items() if not isinstance(value, dict)]
    for section, values in content.items():
        if isinstance(values, dict):
            lines += ["", f"[{_word(section)}]"]
            lines += [f"{_word(key)} = {_toml(_shared(section, key, value))}" for key, value in values.items()]
    return "\n".join(lines).lstrip("\n") + "\n"


def _shared(section: str, key: str, value: Any) -> Any:
    """Return a setting as it may be shared."""
    if (section, key) == ("data", "connection"):
        return re.sub("://.*", f"://{HIDDEN}", str(value), flags=re.DOTALL)
    if (section, key) in _PATHS:
        return [_local_name(each) for each in value] if isinstance(value, list) else _local_name(value)
    return value


def _local_name(path: Any) -> Any:
    """Return a path without the folders of this machine; those below the config's are kept."""
    if not isinstance(path, str):
        return path
    parts = PureWindowsPath(path).parts
    is_local = (
        PurePosixPath(path).is_absolute() or PureWindowsPath(path).anchor or path.startswith("~") or ".." in parts
    )
    return PureWindowsPath(path).name if is_local else path


def _toml(value: Any) -> str:
    """Return a value of a TOML file as it is written."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return json.dumps(without_credentials(value), ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{_word(key)} = {_toml(each)}' for key, each in value.items())} }}"
    return value.isoformat() if isinstance(value, datetime.date | datetime.time) else repr(value)


def _word(key: str) -> str:
    return key if re.fullmatch("[A-Za-z0-9_-]+", key) else _toml(key)
