"""Few examples by default; COALTREE_EXAMPLES=500 tries more, with fresh randomness."""

import os

from hypothesis import HealthCheck, Phase, settings

wanted = os.environ.get("COALTREE_EXAMPLES")
settings.register_profile(
    "coaltree",
    max_examples=int(wanted or 20),
    derandomize=wanted is None,
    deadline=None,
    database=None,
    phases=(Phase.explicit, Phase.generate),  # a shrunk example would be nicer, and takes minutes
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)
settings.load_profile("coaltree")
