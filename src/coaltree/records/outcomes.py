"""Outcomes defined by codes: read from a TOML file that users can edit, matched against the codes that occur.

Codes are matched in Python, once for each distinct code, and the engine joins the result: the rule is exact and the
same on every engine, and a data set has few distinct codes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from coaltree.records.codes import DEATH, ICD9, ICD9_PROCEDURE, ICD10, ICD10_PROCEDURE, CodePattern, parsed
from coaltree.records.errors import RecordsError, check_keys, read_toml

SHIPPED = Path(__file__).with_name("outcomes.toml")
_FILE_NAME = re.compile(r"\w[\w.-]{0,99}")
_RESERVED = re.compile(r"(con|prn|aux|nul|(com|lpt)\d)(\..*)?", re.IGNORECASE)  # no names of files on Windows
_VOCABULARIES = {
    "icd9": ICD9,
    "icd9_procedure": ICD9_PROCEDURE,
    "icd10": ICD10,
    "icd10_procedure": ICD10_PROCEDURE,
    "hcpcs": "HCPCS",
    "codes": "",
}


@dataclass(frozen=True)
class Definition:
    """A named family of codes: those that match one of `patterns` and none of `excluded`."""

    key: str
    name: str
    patterns: tuple[CodePattern, ...]
    excluded: tuple[CodePattern, ...] = ()
    origin: str = ""  # what a report shows instead of codes

    def matches(self, code: str) -> bool:
        """Whether a code, in any dialect, belongs to the family."""
        vocabulary, bare = parsed(code)
        wanted, unwanted = self._of(vocabulary)
        return any(pattern.takes(bare, code) for pattern in wanted) and not any(
            pattern.takes(bare, code) for pattern in unwanted
        )

    def _of(self, vocabulary: str) -> tuple[tuple[CodePattern, ...], tuple[CodePattern, ...]]:
        """Patterns that can match a code of a vocabulary: its own, and those of whole codes."""
        if vocabulary not in self._chosen:
            parts = [
                tuple(p for p in some if p.vocabulary in ("", vocabulary)) for some in (self.patterns, self.excluded)
            ]
            self._chosen[vocabulary] = (parts[0], parts[1])
        return self._chosen[vocabulary]

    @cached_property
    def _chosen(self) -> dict[str, tuple[tuple[CodePattern, ...], tuple[CodePattern, ...]]]:
        return {}

    def as_table(self) -> dict[str, Any]:
        """Return what `read_definition` reads."""
        table: dict[str, Any] = {"name": self.name, **_by_field(self.patterns)}
        return {**table, "except": _by_field(self.excluded)} if self.excluded else table

    @property
    def is_death(self) -> bool:
        """Whether this is death itself, which censors other outcomes."""
        return any(pattern == CodePattern("", DEATH) for pattern in self.patterns)

    def describe(self) -> str:
        """Return the patterns as one line of text."""
        if self.origin:
            return self.origin
        excluded = f" (except {_spoken(self.excluded)})" if self.excluded else ""
        return _spoken(self.patterns) + excluded


def _spoken(patterns: tuple[CodePattern, ...]) -> str:
    return "; ".join(
        f"{_VOCABULARIES[field]} {', '.join(texts)}".strip() for field, texts in _by_field(patterns).items()
    )


def _by_field(patterns: tuple[CodePattern, ...]) -> dict[str, list[str]]:
    """Strings of patterns by the field of a definition."""
    fields = {vocabulary: field for field, vocabulary in _VOCABULARIES.items()}
    found: dict[str, list[str]] = {}
    for pattern in patterns:
        found.setdefault(fields[pattern.vocabulary], []).append(pattern.text)
    return found


@dataclass(frozen=True)
class OutcomeSet:
    """The outcomes of a study and the codes that make a subject eligible (None: everybody is)."""

    outcomes: tuple[Definition, ...]
    inclusion: Definition | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the outcomes, in order."""
        return tuple(outcome.name for outcome in self.outcomes)

    @property
    def death(self) -> int | None:
        """Position of death among the outcomes."""
        return next((i for i, outcome in enumerate(self.outcomes) if outcome.is_death), None)

    def match(self, codes: Iterable[str]) -> list[tuple[str, int]]:
        """Return the pairs (code, position of an outcome) that belong together; a code may define several outcomes."""
        return [(code, i) for code in codes for i, outcome in enumerate(self.outcomes) if outcome.matches(code)]


def load_outcomes(path: str | Path | None = None, keys: Sequence[str] | None = None) -> OutcomeSet:
    """Read definitions from a TOML file (default: the 21 shipped with the package); `keys` selects some of them."""
    file = Path(path) if path is not None else SHIPPED
    content = read_toml(file, "the file of outcome definitions")
    check_keys(content, ("inclusion", "outcomes"), str(file))
    tables = content.get("outcomes", {})
    if not isinstance(tables, dict) or not tables:
        raise RecordsError(f"{file} defines no outcomes: it needs at least one table [outcomes.some_key].")
    _check_names(tables, file)
    wanted = list(tables) if keys is None else list(keys)
    check_keys(dict.fromkeys(wanted), tables, f"the outcomes chosen from {file}")
    outcomes = tuple(read_definition(key, tables[key], f"{file}, [outcomes.{key}]") for key in wanted)
    inclusion = content.get("inclusion")
    return OutcomeSet(
        outcomes, read_definition("inclusion", inclusion, f"{file}, [inclusion]") if inclusion is not None else None
    )


def _check_names(keys: Iterable[str], file: Path) -> None:
    """Refuse keys that cannot be names of files on every system, alone or beside each other."""
    taken: dict[str, str] = {}
    for key in keys:
        if _FILE_NAME.fullmatch(key) is None or _RESERVED.fullmatch(key):
            raise RecordsError(
                f"{file}, [outcomes.{json.dumps(key)}]: a key names the file of the outcome's labels; write 1 to 100 "
                "letters, digits, _, - and dots, such as heart_failure; what readers see is its name."
            )
        if taken.setdefault(key.lower(), key) != key:
            raise RecordsError(
                f"{file}: the outcomes {taken[key.lower()]!r} and {key!r} differ by capitals alone, and so would the "
                "files of their labels. Rename one."
            )


def read_definition(key: str, table: Any, where: str) -> Definition:
    """Read one definition from a TOML table; `where` gives its place in error messages."""
    if not isinstance(table, dict):
        raise RecordsError(f"{where} must be a table with a name and lists of codes.")
    check_keys(table, ("name", *_VOCABULARIES, "except"), where)
    patterns = _patterns(table, where)
    if not patterns:
        raise RecordsError(f"{where} has no codes; give at least one of {', '.join(_VOCABULARIES)}.")
    exceptions = table.get("except", {})
    if not isinstance(exceptions, dict):
        raise RecordsError(f'{where}: except must be a table of lists of codes, such as except.icd9 = ["410.x2"].')
    check_keys(exceptions, _VOCABULARIES, f"{where}, except")
    name = table.get("name", key)
    if not isinstance(name, str):
        raise RecordsError(f"{where}: name must be a text, got {name!r}.")
    return Definition(key, name, patterns, _patterns(exceptions, f"{where}, except"))


def _patterns(table: dict[str, Any], where: str) -> tuple[CodePattern, ...]:
    patterns = []
    for field, vocabulary in _VOCABULARIES.items():
        texts = table.get(field, [])
        if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
            raise RecordsError(f'{where}: {field} must be a list of texts such as ["410", "411.1"].')
        for text in texts:
            try:
                patterns.append(CodePattern(vocabulary, text))
            except ValueError as error:
                raise RecordsError(f"{where}: {error}") from error
    return tuple(patterns)
