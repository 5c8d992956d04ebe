"""A full disk or a folder that cannot be written leaves the last file whole."""

import errno
import io
import os
import shutil
import subprocess
import sys
import zipfile

import pytest

import coaltree as ct
from coaltree import storage
from coaltree.regression.fit import fit_regression


class FullDisk:
    """Opens files in which only so many bytes fit, as a disk does that fills up during the write."""

    def __init__(self, monkeypatch, room):
        self.room = room
        real = storage.Path.open

        def open_(path, mode="r", *arguments, **options):
            file = real(path, mode, *arguments, **options)
            return Filling(file, self) if "x" in mode or "w" in mode else file

        monkeypatch.setattr(storage.Path, "open", open_)


class Filling(io.RawIOBase):
    """A file on such a disk."""

    def __init__(self, file, disk):
        self.file, self.disk = file, disk

    def write(self, data):
        if self.file.tell() + len(bytes(data)) > self.disk.room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return self.file.write(data)

    def __getattr__(self, name):
        return getattr(self.file, name)

    def __enter__(self):
        return self

    def seek(self, *arguments):
        return self.file.seek(*arguments)

    def tell(self):
        return self.file.tell()

    def fileno(self):
        return self.file.fileno()

    def flush(self):
        self.file.flush()

    def close(self):
        self.file.close()


@pytest.fixture(scope="module")
def X():
    return 10.0 * ct.sample_data(ct.sample_tree(8, random_state=1), 3, random_state=2)


def learner(X, path, n_iter):
    return ct.learn_posterior(X, n_draws=2 * n_iter - 2, warmup=1, thin=1, checkpoint=path).posterior.times.tobytes()


def probit(X, path, n_iter):
    Y = (X[:, :2] > X[:, :2].mean(axis=0)).astype(float)
    fit = fit_regression(X, Y, n_iter=n_iter, burn_in=1, n_chains=1, random_state=0, checkpoint=path)
    return fit.coef_draws.tobytes()


@pytest.mark.parametrize("run", [learner, probit])
@pytest.mark.parametrize("room", [0, 100, 1500])
def test_a_disk_that_fills_up(run, room, X, tmp_path, monkeypatch):
    path = tmp_path / "run.npz"
    run(X, path, 3)
    before = path.read_bytes()
    assert len(before) > room
    with monkeypatch.context() as patch:
        FullDisk(patch, room)
        with pytest.raises(OSError, match="No space left"):
            run(X, path, 6)
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["run.npz"]
    assert run(X, path, 6) == run(X, tmp_path / "other.npz", 6)  # once there is room again


@pytest.mark.skipif(sys.platform != "linux", reason="mounts a small file system as Linux does")
def test_a_small_file_system(X, tmp_path):
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"cannot mount a small file system: {mounted.stderr.decode().strip()}")
    try:
        path = folder / "run.npz"
        learner(X, path, 3)
        before = path.read_bytes()
        (folder / "filler").write_bytes(b"x" * (64 * 1024 - len(before) - 8192))
        with pytest.raises(OSError, match="No space left"):
            learner(X, path, 400)
        assert path.read_bytes() == before
        (folder / "filler").unlink()
        assert learner(X, path, 6) == learner(X, tmp_path / "other.npz", 6)
    finally:
        subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.skipif(os.name != "posix", reason="needs permissions of folders")
def test_a_folder_that_cannot_be_written(X, tmp_path):
    path = tmp_path / "kept" / "run.npz"
    path.parent.mkdir()
    learner(X, path, 3)
    before = path.read_bytes()
    path.parent.chmod(0o500)
    bound = not os.access(path.parent, os.W_OK)
    if not bound:  # root may write everywhere but into what is immutable
        chattr = shutil.which("chattr")
        if chattr is None or subprocess.run([chattr, "+i", path.parent], capture_output=True, check=False).returncode:
            path.parent.chmod(0o700)
            pytest.skip("root, and the file system has no immutable folders")
    try:
        with pytest.raises(PermissionError):
            learner(X, path, 6)
        assert path.read_bytes() == before
    finally:
        if not bound:
            subprocess.run([chattr, "-i", path.parent], check=True)
        path.parent.chmod(0o700)
    assert [file.name for file in path.parent.iterdir()] == ["run.npz"]
    assert zipfile.is_zipfile(path)
