"""A real Dask cluster on this machine, and the loss of one of its workers."""

import os
import signal
import threading
import time

import joblib
import pytest


def on_a_cluster(work):
    """Call `work` on a cluster of two processes; then again, one of them killed while it works, with all that it held.

    Returns both results.
    """
    distributed = pytest.importorskip("distributed")
    killed = []

    def kill_one(client):
        pids = client.run(os.getpid)
        while not killed:
            for address, tasks in client.processing().items():
                if tasks and not killed:
                    os.kill(pids[address], signal.SIGKILL)
                    killed.append(len(tasks))
            time.sleep(0.02)

    cluster = distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, silence_logs=50
    )
    with cluster, distributed.Client(cluster) as client:
        with joblib.parallel_config(backend="dask"):
            whole = work()
            killer = threading.Thread(target=kill_one, args=(client,), daemon=True)
            killer.start()
            after_loss = work()
        killer.join(timeout=10)
    assert killed
    assert killed[0] > 0
    return whole, after_loss
