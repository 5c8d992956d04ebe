"""Medical codes: one spelling for every dialect, and patterns that match families of them.

A code is written VOCABULARY//BODY. Sources spell the same ICD9 diagnosis 250.00, 25000, ICD9CM//250.00 or
DIAGNOSIS//ICD//9//25000; `normalise` turns all of them into ICD9//250.00. The vocabulary is part of the code: 37.22 is
a cardiac catheterisation among ICD9 procedures, and 372.2, undotted also 3722, is a conjunctivitis among diagnoses.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property, lru_cache

from coaltree.errors import InputError

SEPARATOR = "//"
BIRTH, DEATH = "MEDS_BIRTH", "MEDS_DEATH"
OBSERVATION_START, OBSERVATION_END = "OBSERVATION_START", "OBSERVATION_END"

ICD9, ICD9_PROCEDURE, ICD10, ICD10_PROCEDURE = "ICD9", "ICD9PROC", "ICD10", "ICD10PCS"

_ALIASES = {
    "ICD9": ICD9,
    "ICD9CM": ICD9,
    "ICD9DX": ICD9,
    "ICD9PROC": ICD9_PROCEDURE,
    "ICD9PCS": ICD9_PROCEDURE,
    "ICD9PR": ICD9_PROCEDURE,
    "ICD9SG": ICD9_PROCEDURE,
    "ICD9CMPROC": ICD9_PROCEDURE,
    "ICD10": ICD10,
    "ICD10CM": ICD10,
    "ICD10DX": ICD10,
    "ICD10PCS": ICD10_PROCEDURE,
    "ICD10PROC": ICD10_PROCEDURE,
    "HCPCS": "HCPCS",
    "CPT": "HCPCS",  # CPT codes are level I of HCPCS
    "CPT4": "HCPCS",
    "NDC": "NDC",
    "LOINC": "LOINC",
    "LNC": "LOINC",
    "RXNORM": "RXNORM",
}
# Countries have their own editions of ICD10 (ICD10GM, ICD-10-CA, ICD10AM, ICD10WHO, ICD10CM2024, CIM10, KCD8); the
# first four characters mean the same in all of them. Procedures are not included.
_NATIONAL = re.compile(r"(?:ICD10|CIM10|CID10|CIE10)(?!PCS|PROC|PR$)[A-Z]{0,4}\d{0,4}|KCD\d?|SKS")
_DANISH = re.compile(r"D[A-Z]\d\d[0-9A-Z.]*")  # SKS writes ICD10 with a D before it
_MARKS = re.compile(r"[-+*!†#.]+$")  # of dagger and star codes, and of categories written E11.-
# DIAGNOSIS//ICD//9//25000 and DIAGNOSIS//ICD10CM//E11.9, as extracts of hospital databases write it.
_KINDS = frozenset(
    ("DIAGNOSIS", "DIAGNOSES", "DX", "CONDITION", "PROCEDURE", "PX", "DRUG", "MEDICATION", "LAB", "MEASUREMENT")
)
_ICD_BY_KIND = {
    ("DIAGNOSIS", "9"): ICD9,
    ("PROCEDURE", "9"): ICD9_PROCEDURE,
    ("DIAGNOSIS", "10"): ICD10,
    ("PROCEDURE", "10"): ICD10_PROCEDURE,
}
_SEX = re.compile(r"(?:MEDS_)?(?:GENDER|SEX)/{1,2}(?:GENDER/{1,2})?(?P<body>\w+)", re.IGNORECASE)
# 1 and 2 are male and female in ISO 5218 and in claims, 8507 and 8532 in OMOP.
_FEMALE = {
    **dict.fromkeys(("F", "FEMALE", "W", "WOMAN", "2", "8532"), True),
    **dict.fromkeys(("M", "MALE", "MAN", "1", "8507"), False),
}
_SHAPES = {
    ICD9: re.compile(r"(?:\d{3}|V\d{2})\d{0,2}|E\d{3}\d?"),
    ICD9_PROCEDURE: re.compile(r"\d{2}\d{0,2}"),
    ICD10: re.compile(r"[A-Z]\d[0-9A-Z][0-9A-Z]{0,4}"),
    ICD10_PROCEDURE: re.compile(r"[0-9A-HJ-NP-Z]{7}"),
}


def split(code: str) -> tuple[str, str]:
    """Return the vocabulary in its usual spelling and the body of a code; the vocabulary is "" if there is none."""
    parts = code.strip().split(SEPARATOR)
    if len(parts) == 1:  # some converters write VOCABULARY/BODY
        parts = code.strip().split("/", 1)
    if len(parts) == 1:
        return "", parts[0]
    if len(parts) == 4 and parts[1].upper() == "ICD":
        vocabulary = _ICD_BY_KIND.get((parts[0].upper(), parts[2]))
        if vocabulary:
            return vocabulary, parts[3]
    if len(parts) > 2 and parts[0].upper() in _KINDS and _vocabulary(parts[1]) is not None:
        parts = parts[1:]
    vocabulary = _vocabulary(parts[0])
    body = SEPARATOR.join(parts[1:])
    if vocabulary == ICD10:
        body = _MARKS.sub("", body.strip())
        if _bare(parts[0]) in ("ICD10DK", "SKS") and _DANISH.fullmatch(body.upper()):
            body = body[1:]
    return parts[0] if vocabulary is None else vocabulary, body


def _bare(text: str) -> str:
    return re.sub(r"[\s_.-]", "", text).upper()


def _vocabulary(text: str) -> str | None:
    """Return the usual name of a vocabulary, None if it is unknown."""
    bare = _bare(text)
    return _ALIASES.get(bare, ICD10 if _NATIONAL.fullmatch(bare) else None)


def sex_of(code: str) -> bool | None:
    """Whether a code such as GENDER//F means female; None for a code that does not give a sex."""
    found = _SEX.fullmatch(code.strip())
    return None if found is None else _FEMALE.get(found["body"].upper())


def undotted(body: str) -> str:
    """Return the body of a code in capitals, without dots or blanks."""
    return body.replace(".", "").replace(" ", "").upper()


def is_regular(vocabulary: str, body: str) -> bool:
    """Whether a body has the shape of its vocabulary; vocabularies without a known shape accept anything.

    A dot in the wrong place means a code from another vocabulary, or one that has lost its leading zero.
    """
    shape = _SHAPES.get(vocabulary)
    if shape is None:
        return True
    bare = undotted(body)
    if shape.fullmatch(bare) is None:
        return False
    dot = body.strip().find(".")
    return dot < 0 or dot == min(_dot_place(vocabulary, bare), len(bare))


def _dot_place(vocabulary: str, bare: str) -> int:
    """Number of characters before the dot: two in ICD9 procedures, four in E codes of ICD9, otherwise three."""
    if vocabulary == ICD9_PROCEDURE:
        return 2
    if vocabulary == ICD10_PROCEDURE:
        return len(bare)  # it has none
    return 4 if vocabulary == ICD9 and bare[0] == "E" else 3


def normalise(code: str) -> str:
    """Return the one spelling of a code: VOCABULARY//BODY with the dot of its vocabulary.

    ICD diagnoses have it after three characters (four for E codes of ICD9), ICD9 procedures after two. A body that
    does not have the shape of its vocabulary, and codes of unknown vocabularies, keep their characters.
    """
    vocabulary, body = split(code)
    if not vocabulary:
        return body.strip()
    if vocabulary in _SHAPES and is_regular(vocabulary, body):
        bare = undotted(body)
        place = _dot_place(vocabulary, bare)
        body = bare if len(bare) <= place else f"{bare[:place]}.{bare[place:]}"
    elif vocabulary == "NDC":
        body = body.replace("-", "").strip()
    elif vocabulary in _ALIASES.values():
        body = body.strip().upper()
    return f"{vocabulary}{SEPARATOR}{body.strip()}"


@dataclass(frozen=True)
class CodePattern:
    """A family of codes of one vocabulary.

    `text` is a prefix (410 matches 410 and 410.71), a range of prefixes of equal length (490-492), or a prefix in which
    x stands for one character (402.x1 matches 402.01, 402.11 and 402.91). With an empty vocabulary it is a whole code
    such as MEDS_DEATH. Dots do not matter.
    """

    vocabulary: str
    text: str

    def __post_init__(self) -> None:
        low, high = self._ends
        if not low or len(low) != len(high) or low > high or not re.fullmatch(r"[A-Z0-9x]+", low + high):
            raise InputError(
                f"{self.text!r} is not a pattern of codes. Write a prefix (410), a range of prefixes of equal length "
                "(490-492), or a prefix with x for any one character (402.x1)."
            )
        if low != high and "x" in low + high:
            raise InputError(f"{self.text!r} mixes a range and x; write the range as separate patterns.")

    @cached_property
    def _ends(self) -> tuple[str, str]:
        if not self.vocabulary:
            return "CODE", "CODE"
        low, _, high = self.text.replace("–", "-").partition("-")
        # x is a wildcard in lower case only: capitals are part of a code.
        clean = [end.replace(".", "").replace(" ", "") for end in (low, high or low)]
        upper = ["".join(c if c == "x" else c.upper() for c in end) for end in clean]
        return upper[0], upper[1]

    @cached_property
    def _whole(self) -> str:
        return normalise(self.text)

    @cached_property
    def _expression(self) -> re.Pattern[str]:
        return re.compile(self._ends[0].replace("x", "."))

    def matches(self, code: str) -> bool:
        """Whether a code, in any dialect, belongs to this family."""
        vocabulary, bare = parsed(code)
        return self.takes(bare if vocabulary == self.vocabulary else None, code)

    def takes(self, bare: str | None, code: str) -> bool:
        """The same for a code whose body in this pattern's vocabulary is known; None if it belongs to another."""
        if not self.vocabulary:
            return normalise(code) == self._whole
        if bare is None:
            return False
        low, high = self._ends
        if low == high:
            return self._expression.match(bare) is not None
        return len(bare) >= len(low) and low <= bare[: len(low)] <= high


@lru_cache(maxsize=1 << 16)
def parsed(code: str) -> tuple[str, str | None]:
    """Return the vocabulary of a code and its body without a dot, None if the body does not have its shape.

    A data set has many codes and a study many patterns: each code is read once.
    """
    vocabulary, body = split(code)
    return vocabulary, undotted(body) if is_regular(vocabulary, body) else None
