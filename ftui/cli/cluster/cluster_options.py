"""The options of `ftui cluster`."""

from ftui.cli.options.command_parser import Verbs, add_command, add_value_options


def add_cluster(verbs: Verbs) -> None:
    """`ftui cluster`."""
    text = "print a script that trains a profile on several machines of a cluster"
    cluster = add_command(verbs, "cluster", text, "cluster.print_script:print_script")
    cluster.add_argument("kind", choices=("slurm", "sky"), help="for sbatch, or for `sky launch`")
    cluster.add_argument("profile", metavar="PROFILE", help="a file on a volume that all machines share")
    cluster.add_argument("--nodes", metavar="N", type=int, help="machines (otherwise hardware.nodes, or 2)")
    cluster.add_argument("--gpus", metavar="N", type=int, help="GPUs of each (otherwise num_processes / nodes)")
    cluster.add_argument("--time", metavar="HH:MM:SS", default="24:00:00", help="how long SLURM lets it run (24:00:00)")
    cluster.add_argument("--card", metavar="C", help="for sky: the card as SkyPilot names it, H100 ...")
    add_value_options(cluster, tier=False)
