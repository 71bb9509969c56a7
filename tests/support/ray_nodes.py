"""A Ray cluster of two nodes on one machine: `python ray_nodes.py ADDRESS_FILE`, ended by the end of its stdin.

A line on stdin ends the second node as a machine ends that loses its power: its raylet and all that was started there
are killed, and a third node takes its place. It prints whom it has killed, in one line.
"""

import os
import sys
import tempfile
from pathlib import Path

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
SECOND = {"num_cpus": 2, "num_gpus": 1, "object_store_memory": 80 << 20}
SOON = {  # a node that is gone is noticed within seconds
    "health_check_period_ms": 500, "health_check_failure_threshold": 3, "health_check_timeout_ms": 1000,
    "health_check_initial_delay_ms": 500,
}  # fmt: skip


def kill_node(raylet: int) -> list[str]:
    """Kill a raylet and every process that has it in its environment, as all on its node have."""
    import psutil

    killed = []
    mark = f"RAY_RAYLET_PID={raylet}"
    for process in psutil.process_iter():
        try:
            if process.pid == raylet or mark in (f"{k}={v}" for k, v in process.environ().items()):
                killed.append(" ".join(process.cmdline()[-2:]))
                process.kill()
        except psutil.Error:  # it has ended, or is none of ours
            continue
    return killed


def main(address_file: Path) -> int:
    from ray.cluster_utils import Cluster

    with tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp") as folder:  # sockets have short names
        head = {**SECOND, "include_dashboard": False, "temp_dir": folder, "_system_config": SOON}
        cluster = Cluster(initialize_head=True, head_node_args=head)
        second = cluster.add_node(**SECOND)
        address_file.write_text(cluster.address)
        try:
            for _ in sys.stdin:
                raylet = second.all_processes["raylet"][0].process.pid
                killed = kill_node(raylet)
                print(*killed, flush=True)
                cluster.remove_node(second, allow_graceful=False)
                second = cluster.add_node(**SECOND)
        finally:
            cluster.shutdown()
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
