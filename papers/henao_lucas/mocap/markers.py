"""Which part of the body a marker is on, as the paper relabels them."""

from __future__ import annotations

AXES = ("X", "Y", "Z")
PARTS = ("Head", "Torso", "Arm:R", "Arm:L", "Leg:R", "Leg:L")
# Head, base of the neck, shoulders and upper arms: the subtree that the paper looks at.
NINE = ("LBHD", "LFHD", "RBHD", "RFHD", "C7", "LSHO", "RSHO", "LUPA", "RUPA")

LOWER_ARMS = ("LELB", "LFRM", "LWRA", "LWRB", "LFIN", "RELB", "RFRM", "RWRB", "RFIN")
FEET = ("LANK", "LHEE", "LMT5", "RANK", "RHEE", "RMT5", "RTOE")

_HEAD = ("BHD", "FHD")
_TORSO = ("BWT", "FWT")
_ARM = ("SHO", "UPA", "ELB", "FRM", "WRA", "WRB", "FIN")
_LEG = ("THI", "KNE", "SHN", "ANK", "HEE", "MT5", "TOE")


def body_part(marker: str) -> str:
    """Return Head, Torso, Arm:R, Arm:L, Leg:R or Leg:L for a marker such as LANK."""
    side, place = marker[0], marker[1:]
    if marker == "C7" or place in _TORSO:
        return "Torso"
    if place in _HEAD:
        return "Head"
    if place in _ARM:
        return f"Arm:{side}"
    if place in _LEG:
        return f"Leg:{side}"
    raise ValueError(f"marker {marker!r} is on no known part of the body.")
