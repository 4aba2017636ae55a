"""Clusters of Ray for cases: one at a time, of as many workers as a case asks for."""

from typing import Any

from fairnepv.compute import engine_of


def cluster_of(workers: int) -> Any:
    """The engine of the cluster that runs; one of another number of workers is ended first."""
    from fairnepv.compute.ray.connection import ClusterConnection

    there = ClusterConnection.current
    if there is not None and there.alive and there.workers != workers:
        there.close()
    return engine_of("local-ray", workers)
