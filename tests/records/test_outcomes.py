from pathlib import Path

import pytest

from coaltree.records import RecordsError, load_outcomes
from coaltree.records.codes import normalise, split
from coaltree.records.generator import ALSO, BILLING, COMPLICATIONS, DECOYS, DIABETES, OUTCOME_CODES, spellings
from coaltree.records.outcomes import SHIPPED, read_definition


def meaning(code):
    """What a code of the simulated cohort means, from the lists written by hand."""
    return {key for key, codes in OUTCOME_CODES.items() if code in codes} | set(ALSO.get(code, ()))


def test_shipped_definitions_agree_with_the_hand_written_lists():
    shipped = load_outcomes()
    assert [outcome.key for outcome in shipped.outcomes] == list(OUTCOME_CODES)
    assert len(shipped.names) == 21
    codes = {code for codes in OUTCOME_CODES.values() for code in codes}
    for code in (*codes, *DECOYS, *DIABETES, *BILLING):
        for spelling in spellings(code):
            found = {shipped.outcomes[j].key for _, j in shipped.match([spelling])}
            assert found == meaning(code), spelling


def test_inclusion_is_diabetes_with_its_complications():
    inclusion = load_outcomes().inclusion
    assert all(inclusion.matches(code) for code in (*DIABETES, *COMPLICATIONS))
    assert not any(inclusion.matches(code) for code in DECOYS)


def test_death_is_known():
    shipped = load_outcomes()
    assert shipped.death == 0
    assert load_outcomes(keys=["stroke", "copd"]).death is None
    assert load_outcomes(keys=["stroke", "copd"]).names == ("Stroke", "COPD")


def test_users_edit_the_file(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text('[outcomes.flu]\nname = "Influenza"\nicd9 = ["487-488"]\n')
    mine = load_outcomes(file)
    assert mine.match(["ICD9//487.1", "ICD9//486"]) == [("ICD9//487.1", 0)]
    assert mine.inclusion is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[outcome.flu]\nicd9 = ['487']", "Did you mean 'outcomes'"),
        ("[outcomes.flu]\nicd_9 = ['487']", "Did you mean 'icd9'"),
        ("[outcomes.flu]\nicd9 = '487'", "list of texts"),
        ("[outcomes.flu]\nname = 'Influenza'", "has no codes"),
        ("[outcomes.flu]\nicd9 = ['48*']", r"\[outcomes.flu\].*is not a pattern"),
        ("[outcomes]", "defines no outcomes"),
        ("[outcomes", "not valid TOML"),
    ],
)
def test_mistakes_are_named(tmp_path, text, message):
    file = tmp_path / "mine.toml"
    file.write_text(text)
    with pytest.raises(RecordsError, match=message):
        load_outcomes(file)


def test_missing_file_and_unknown_key(tmp_path):
    with pytest.raises(RecordsError, match="does not exist"):
        load_outcomes(tmp_path / "no.toml")
    with pytest.raises(RecordsError, match="Did you mean 'stroke'"):
        load_outcomes(SHIPPED, keys=["strok"])


# ---- the table of the documentation, code by code


def documented():
    """Name, codes that match and codes that do not, from docs/outcomes.md."""
    lines = (Path(__file__).parents[2] / "docs" / "outcomes.md").read_text().splitlines()
    for line in lines:
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 4 and cells[0] not in ("outcome", "---"):
            yield cells[0], cells[1].split(", "), cells[2].split(", ")


@pytest.mark.parametrize(("name", "wanted", "unwanted"), list(documented()))
def test_the_documented_codes(name, wanted, unwanted):
    shipped = load_outcomes()
    definition = shipped.inclusion if "inclusion" in name else {o.name: o for o in shipped.outcomes}[name]
    assert [code for code in wanted if not definition.matches(code)] == []
    assert [code for code in unwanted if definition.matches(code)] == []


def test_every_outcome_is_documented_with_every_vocabulary():
    shipped = load_outcomes()
    found = {name: wanted for name, wanted, _ in documented()}
    assert set(found) == {*shipped.names, "Diabetes (inclusion)"}
    for outcome in shipped.outcomes:
        for pattern in outcome.patterns:
            vocabulary = pattern.vocabulary
            assert any(not vocabulary or split(code)[0] == vocabulary for code in found[outcome.name]), pattern
    # Procedures exist on both sides of October 2015, and as bills.
    for key in ("amputation", "angioplasty", "arterial_catheterisation", "cardiac_catheterisation"):
        fields = {o.key: set(o.as_table()) for o in shipped.outcomes}[key]
        assert {"icd9_procedure", "icd10_procedure", "hcpcs"} <= fields
    for definition in (*shipped.outcomes, shipped.inclusion):
        assert read_definition(definition.key, definition.as_table(), "x") == definition


def test_exceptions_are_checked(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text('[outcomes.flu]\nicd9 = ["487"]\nexcept.icd9 = ["487.8"]\n')
    mine = load_outcomes(file)
    assert [mine.outcomes[0].matches(code) for code in ("ICD9//487.1", "ICD9//487.8")] == [True, False]
    assert "except ICD9 487.8" in mine.outcomes[0].describe()
    file.write_text('[outcomes.flu]\nicd9 = ["487"]\nexcept.icd_9 = ["487.8"]\n')
    with pytest.raises(RecordsError, match="Did you mean 'icd9'"):
        load_outcomes(file)


@pytest.mark.parametrize(
    "code",
    ["DIAGNOSIS//ICD10CM//E11.9", "ICD10GM//E11.9", "ICD-10-CA//E119", "ICD10AM//E11.9", "CIM10//E119", "KCD8//E11.9",
     "ICD10DK//DE119", "ICD10GM//E11.9+", "ICD10CM2024//E11.9", "DIAGNOSIS//ICD//10//E119"],
)  # fmt: skip
def test_national_editions(code):
    assert normalise(code) == "ICD10//E11.9"
    assert load_outcomes().inclusion.matches(code)


def test_procedures_are_no_national_edition():
    assert normalise("ICD10PCS//0Y6H0Z1") == "ICD10PCS//0Y6H0Z1"
    assert normalise("PROCEDURE//ICD10PCS//0Y6H0Z1") == "ICD10PCS//0Y6H0Z1"
    assert normalise("LAB//50912//mg/dL") == "LAB//50912//mg/dL"
