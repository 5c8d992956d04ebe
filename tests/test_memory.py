"""Free memory: the least of what the machine and the control groups of the process leave."""

import json
import subprocess
import sys

import pytest

from coaltree import memory

GB = 1 << 30


@pytest.fixture
def system(tmp_path, monkeypatch):
    """A machine with 8 GB free, without control groups; `system(lines, files)` adds them."""
    meminfo, groups, mounted = tmp_path / "meminfo", tmp_path / "cgroup", tmp_path / "mounted"
    meminfo.write_text(f"MemTotal: {16 * GB // 1024} kB\nMemAvailable: {8 * GB // 1024} kB\n")
    for name, path in {"MEMINFO": meminfo, "GROUPS": groups, "MOUNTED": mounted}.items():
        monkeypatch.setattr(memory, name, path)

    def add(lines, files):
        groups.write_text("\n".join(lines))
        for name, content in files.items():
            file = mounted / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f"{content}\n")

    return add


def test_machine_alone(system):
    assert memory.available_memory() == 8 * GB


def test_nothing_is_known(system):
    memory.MEMINFO.unlink()
    assert memory.available_memory() is None


def test_version_2(system):
    files = {"job/step/memory.max": 3 * GB, "job/step/memory.current": GB}
    system(["0::/job/step"], files)
    assert memory.available_memory() == 2 * GB
    system(["0::/job/step"], {"job/step/memory.stat": f"anon 5\ninactive_file {GB // 2}"})
    assert memory.available_memory() == 2 * GB + GB // 2
    memory.MEMINFO.unlink()
    assert memory.available_memory() == 2 * GB + GB // 2


def test_the_limit_of_a_group_above_counts(system):
    files = {"job/step/memory.max": "max", "job/step/memory.current": GB}
    system(["0::/job/step"], files)
    assert memory.available_memory() == 8 * GB
    system(["0::/job/step"], {"job/memory.max": 4 * GB, "job/memory.current": 5 * GB})
    assert memory.available_memory() == 0


def test_version_1(system):
    files = {"memory/job/memory.limit_in_bytes": 2 * GB, "memory/job/memory.usage_in_bytes": GB}
    system(["4:memory,hugetlb:/job", "3:cpu:/other", "0::/"], files)
    assert memory.available_memory() == GB
    system(["4:memory:/job"], {"memory/job/memory.limit_in_bytes": 9223372036854771712})
    assert memory.available_memory() == 8 * GB


def test_a_container_that_sees_its_group_as_the_mount(system):
    system(["4:memory:/docker/0123"], {"memory/memory.limit_in_bytes": GB, "memory/memory.usage_in_bytes": 0})
    assert memory.available_memory() == GB
    system(["0::/../../job"], {"memory.max": GB // 2, "memory.current": 0})
    assert memory.available_memory() == GB // 2


def test_files_that_say_nothing(system):
    system(["", "nonsense", "0::/job"], {"job/memory.max": "many", "job/memory.current": ""})
    assert memory.available_memory() == 8 * GB


PEAK = """
import json, sys, tracemalloc, zipfile
import numpy as np
import coaltree as ct
from coaltree import storage
from coaltree.posterior import ensemble

ensemble._batches = lambda n_trees, n: (slice(k, k + 100) for k in range(0, n_trees, 100))  # else some MB more
n, n_trees, path = 100, 10_000, sys.argv[1]
tree = ct.sample_tree(n, random_state=0)
shared = {"log_evidence": 0.0, "log_joint": np.zeros(n_trees), "ess_per_step": np.ones(n - 1)}
ct.TreePosterior(
    children=np.repeat(tree.children[None], n_trees, axis=0),
    times=np.random.default_rng(0).random((n_trees, n - 1)).cumsum(axis=1),
    weights=np.full(n_trees, 1 / n_trees), **shared,
).save(path)
with zipfile.ZipFile(path) as archive:
    claimed = sum(part.file_size for part in archive.infolist())
counted = []
read = storage._unpack
storage._unpack = lambda file, held: counted.append(held * claimed) or read(file, held)
peaks = []
for load in (storage.read, ct.TreePosterior.load):
    load(path)  # what the first call imports
    tracemalloc.start()
    load(path)
    peaks.append(tracemalloc.get_traced_memory()[1])
    tracemalloc.stop()
print(json.dumps({"claimed": claimed, "counted": counted, "peaks": peaks}))
"""


def test_what_is_counted_is_what_reading_takes(tmp_path):
    """Peaks of a process of its own: the archive alone is held once, and a posterior about 3.4 times."""
    answer = subprocess.run(
        [sys.executable, "-c", PEAK, str(tmp_path / "p.npz")], capture_output=True, text=True, check=True
    )
    found = json.loads(answer.stdout)
    pieces = 5 << 20  # compressed and decompressed bytes on their way
    assert found["peaks"][0] <= found["claimed"] + pieces
    assert found["peaks"][0] <= found["counted"][0]
    assert 0.8 * found["counted"][-1] <= found["peaks"][1] <= found["counted"][-1] + pieces
