"""The codes of the simulated cohort, written out by hand.

What each code means for the outcomes is stated here independently of the definitions in outcomes.toml, so that labels
built from the definitions can be checked against it.
"""

from __future__ import annotations

import numpy as np

# Codes that make each of the 21 outcomes happen, in the order of outcomes.toml. Some make two happen at once.
OUTCOME_CODES: dict[str, tuple[str, ...]] = {
    "death": ("MEDS_DEATH",),
    "acute_mi": ("ICD9//410.01", "ICD9//410.71", "ICD9//410.91", "ICD10//I21.4"),
    "amputation": ("ICD9PROC//84.12", "ICD9PROC//84.15", "ICD9PROC//84.17"),
    "aneurysm": ("ICD9//441.4", "ICD9//442.2", "ICD10//I71.4"),
    "angioplasty": ("ICD9PROC//00.66", "ICD9PROC//36.05", "ICD9PROC//36.06", "ICD9PROC//36.07"),
    "arterial_catheterisation": ("ICD9PROC//38.91",),
    "atrial_fibrillation": ("ICD9//427.31", "ICD10//I48.91"),
    "bipolar": ("ICD9//296.01", "ICD9//296.44", "ICD9//296.80", "ICD10//F31.9"),
    "cardiac_catheterisation": ("ICD9PROC//37.21", "ICD9PROC//37.22", "ICD9PROC//37.23", "ICD9PROC//88.56"),
    "skin_ulcer": ("ICD9//707.03", "ICD9//707.15", "ICD10//L97.509"),
    "copd": ("ICD9//491.21", "ICD9//492.8", "ICD9//494.0", "ICD9//496", "ICD10//J44.9"),
    "coronary_disease": ("ICD9//413.9", "ICD9//414.01", "ICD9//429.2", "ICD10//I25.10"),
    "depression": ("ICD9//296.20", "ICD9//300.4", "ICD9//311", "ICD10//F32.9"),
    "heart_failure": ("ICD9//428.0", "ICD9//398.91", "ICD9//402.01", "ICD9//404.11", "ICD9//404.93", "ICD10//I50.9"),
    "kidney_disease": ("ICD9//250.40", "ICD9//403.90", "ICD9//585.3", "ICD9//593.9", "ICD10//N18.3"),
    "neurological": ("ICD9//250.60", "ICD9//354.0", "ICD9//357.2", "ICD10//G56.00"),
    "obesity": ("ICD9//278.01", "ICD9//V85.30", "ICD9//V85.41", "ICD10//E66.9"),
    "ophthalmic": ("ICD9//250.50", "ICD9//362.01", "ICD9//362.83", "ICD9//379.23", "ICD10//H35.00"),
    "arthritis": ("ICD9//714.0", "ICD9//715.96", "ICD9//716.9", "ICD10//M06.9"),
    "stroke": ("ICD9//431", "ICD9//433.11", "ICD9//434.91", "ICD9//436", "ICD10//I63.9"),
    "unstable_angina": ("ICD9//411.1", "ICD10//I20.0"),
}
ALSO: dict[str, tuple[str, ...]] = {
    "ICD9//411.1": ("coronary_disease",),
    "ICD10//I20.0": ("coronary_disease",),
    "ICD9//404.11": ("kidney_disease",),
    "ICD9//404.93": ("kidney_disease",),
}

DIABETES = ("ICD9//250.00", "ICD9//250.02", "ICD10//E11.9")
COMPLICATIONS = ("ICD9//250.40", "ICD9//250.50", "ICD9//250.60")  # outcomes that are diabetes, too
# Near misses: none of them is an outcome or diabetes.
DECOYS = (
    "ICD9//412",  # old myocardial infarction
    "ICD9//V45.81",  # state after bypass
    "ICD9//V49.75",  # state after amputation
    "ICD9//372.2",  # undotted like the procedure 37.22
    "ICD9//841.2",  # a sprain, undotted like a procedure 84.1
    "ICD9//402.10",  # without heart failure
    "ICD9//433.10",  # without infarction
    "ICD9//427.32",
    "ICD9//296.90",
    "ICD9//251.0",
    "ICD9PROC//41.01",  # undotted like an infarction 410.1
    "ICD9PROC//43.11",  # undotted like a stroke 431.1
    "HCPCS//41000",
)

BILLING = (
    *(f"HCPCS//{code}" for code in (99211, 99212, 99213, 99214, 99215, 99221, 99222, 99223, 99231, 99232, 99233)),
    *(f"HCPCS//{code}" for code in (99281, 99282, 99283, 99284, 99285, 99291, 36415, 71020, 80053, 83036, 85025)),
    *(f"HCPCS//{code}" for code in (93000, 93306, 93015, 93971, 33533, 27447, 27130, 90935, 70450, 74177, 43239)),
    *(f"HCPCS//{code}" for code in ("G0108", "J1815", "A4253")),
)
UNPRICED = ("HCPCS//G0108", "HCPCS//J1815", "HCPCS//A4253")

# ICD9 categories that no outcome touches.
_QUIET = (
    *range(1, 140),
    *range(140, 240),
    *range(240, 249),
    277,
    *range(252, 277),
    *range(280, 290),
    *range(320, 337),
    *range(380, 390),
    *range(451, 460),
    *range(460, 489),
    *range(500, 580),
    *range(600, 630),
    *range(680, 700),
    *range(720, 740),
    *range(780, 830),
)


def ordinary_codes(n: int, rng: np.random.Generator) -> list[str]:
    """Return `n` different codes in the shapes of ICD9 diagnoses (60 %), NDC drugs and LOINC laboratory tests."""
    diagnoses = [f"ICD9//{category:03d}.{digit}" for category in _QUIET for digit in range(10)]
    n_drugs = n_tests = n // 5
    chosen = [diagnoses[i] for i in rng.choice(len(diagnoses), n - n_drugs - n_tests, replace=False)]
    drugs = [f"NDC//{number:011d}" for number in rng.choice(10**9, n_drugs, replace=False) * 7 + 10**9]
    tests = [f"LOINC//{number}-{number % 10}" for number in rng.choice(90000, n_tests, replace=False) + 1000]
    mixed = chosen + drugs + tests
    return [mixed[i] for i in rng.permutation(n)]


def spellings(code: str) -> tuple[str, str, str]:
    """Return three dialects of a code: as it is, undotted, and with the vocabulary's other name."""
    vocabulary, _, body = code.partition("//")
    if vocabulary not in ("ICD9", "ICD9PROC", "ICD10"):
        return code, code, code
    other = {"ICD9": "ICD9CM", "ICD9PROC": "ICD-9-PROC", "ICD10": "ICD10CM"}[vocabulary]
    bare = body.replace(".", "")
    return code, f"{vocabulary}//{bare}", f"{other}//{bare}"
