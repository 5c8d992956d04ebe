import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coaltree.records.codes import CodePattern, is_regular, normalise


@pytest.mark.parametrize(
    ("given_code", "normal"),
    [
        ("ICD9//250.00", "ICD9//250.00"),
        ("ICD9CM//25000", "ICD9//250.00"),
        ("icd-9-cm//25000", "ICD9//250.00"),
        ("DIAGNOSIS//ICD//9//25000", "ICD9//250.00"),
        ("PROCEDURE//ICD//9//3722", "ICD9PROC//37.22"),
        ("DIAGNOSIS//ICD//10//E119", "ICD10//E11.9"),
        ("ICD9CM/4280", "ICD9//428.0"),
        ("ICD9//E9330", "ICD9//E933.0"),
        ("ICD9//V4581", "ICD9//V45.81"),
        ("ICD9//496", "ICD9//496"),
        ("ICD9PROC//0066", "ICD9PROC//00.66"),
        ("ICD10CM//i20.0", "ICD10//I20.0"),
        ("CPT4//99213", "HCPCS//99213"),
        ("NDC//0002-8215-01", "NDC//0002821501"),
        ("MEDS_DEATH", "MEDS_DEATH"),
        ("GENDER//F", "GENDER//F"),
        ("LAB//GLUCOSE//mg/dL", "LAB//GLUCOSE//mg/dL"),
        ("ICD9//OTHER", "ICD9//OTHER"),
    ],
)
def test_every_dialect_has_one_spelling(given_code, normal):
    assert normalise(given_code) == normal
    assert normalise(normal) == normal


@given(st.from_regex(r"(ICD9|ICD9CM|ICD10|ICD9PROC)//[0-9A-Z.]{1,7}", fullmatch=True))
def test_normalising_twice_changes_nothing_and_dots_do_not_matter(code):
    once = normalise(code)
    assert normalise(once) == once
    vocabulary, body = once.split("//")
    if is_regular(vocabulary, body):
        assert normalise(code.replace(".", "")) == once


@pytest.mark.parametrize(
    ("vocabulary", "pattern", "inside", "outside"),
    [
        ("ICD9", "410", ["410", "410.01", "41071"], ["411.1", "41.0"]),
        ("ICD9", "490-492", ["490", "491.21", "4928"], ["493.9", "489", "49"]),
        ("ICD9", "296.4-296.8", ["296.44", "29680"], ["296.90", "296.3", "296"]),
        ("ICD9", "402.x1", ["402.01", "40211", "402.91"], ["402.10", "402", "403.01"]),
        ("ICD9PROC", "36.05–36.07", ["36.05", "3606"], ["36.08", "36.0"]),
        ("ICD10", "J40-J44", ["J40", "J44.9"], ["J45", "J4"]),
    ],
)
def test_patterns(vocabulary, pattern, inside, outside):
    family = CodePattern(vocabulary, pattern)
    assert all(family.matches(f"{vocabulary}//{body}") for body in inside)
    assert not any(family.matches(f"{vocabulary}//{body}") for body in outside)


def test_vocabularies_are_told_apart():
    catheter = CodePattern("ICD9PROC", "37.22")
    assert catheter.matches("ICD9PROC//3722")
    assert not catheter.matches("ICD9//3722")  # a conjunctivitis
    assert not CodePattern("ICD9", "E11").matches("ICD10//E11.9")


def test_whole_codes_are_not_prefixes():
    death = CodePattern("", "MEDS_DEATH")
    assert death.matches("MEDS_DEATH")
    assert not death.matches("MEDS_DEATH_REPORT")


@pytest.mark.parametrize("text", ["", "41-4100", "492-490", "4*0", "402.x1-402.x3"])
def test_wrong_patterns_say_how_to_write_them(text):
    with pytest.raises(ValueError, match=re.escape(repr(text))):
        CodePattern("ICD9", text)
