"""Two runs into one folder: the second is told; what a killed run left keeps nobody away."""

import os
import signal
import subprocess
import sys

import numpy as np
import pytest

from coaltree.errors import FolderError
from coaltree.results import clustering, iris, regression
from coaltree.results import records as of_records
from coaltree.results.folder import claimed

HOLD = """
import sys, time
from coaltree.results.folder import claimed
with claimed(sys.argv[1]):
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_second_run_is_told(tmp_path):
    out = tmp_path / "results"
    with claimed(out):
        with claimed(tmp_path / "others"):
            pass
        with pytest.raises(FolderError, match=r"another run is writing to .*results\. Wait"), claimed(out):
            pass
    with claimed(out):
        pass
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_a_killed_run_keeps_nobody_away(tmp_path):
    out = tmp_path / "results"
    with subprocess.Popen([sys.executable, "-c", HOLD, str(out)], stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout.readline() == "held\n"
        with pytest.raises(FolderError, match="another run"), claimed(out):
            pass
        run.send_signal(signal.SIGKILL)
    assert (tmp_path / ".results.lock").exists()
    with claimed(out):
        pass
    assert list(tmp_path.iterdir()) == []


def test_every_command_claims_its_folder(tmp_path):
    (tmp_path / "x.csv").write_text("a,b\n" + "".join(f"{i},{i % 2}\n" for i in range(12)))
    config = tmp_path / "study.toml"
    config.write_text('[data]\npath = "x"\n[cohort]\nthresholds = ["2009-01-01"]\n')
    out = tmp_path / "out"
    with claimed(out):
        for run in (
            lambda: clustering.cluster(tmp_path / "x.csv", out),
            lambda: regression.regress(np.arange(24.0).reshape(12, 2), np.eye(12)[:, :2], out),
            lambda: iris.demo(out),
            lambda: of_records.study(config, out),
            lambda: of_records.apply(tmp_path / "model.npz", tmp_path, out),
        ):
            with pytest.raises(FolderError, match="another run is writing"):
                run()
