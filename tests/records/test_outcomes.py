import pytest

from coaltree.records.errors import RecordsError
from coaltree.records.outcomes import SHIPPED, load_outcomes
from coaltree.records.vocabulary import ALSO, BILLING, COMPLICATIONS, DECOYS, DIABETES, OUTCOME_CODES, spellings


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
