"""What can be typed after the commands that compare runs and tell of them."""

from ftui.cli.options.command_parser import Verbs, add_command, add_json_option


def add_compare(verbs: Verbs) -> None:
    """`ftui compare`."""
    text = "two to six runs beside each other: results, evaluations, and what differs between them"
    compare = add_command(verbs, "compare", text, "reports.compare:compare_runs")
    compare.add_argument("names", metavar="RUN", nargs="+")
    add_json_option(compare)
