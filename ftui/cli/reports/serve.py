"""`ftui serve`: reports of all runs as pages on this machine, for a browser at the other end of an SSH tunnel."""

from ftui.errors import FINISHED
from ftui.reports.web_server import ReportServer, tunnel_words


def serve(port: int) -> int:
    """Answer until Ctrl-C.

    Raises:
        UsageError: another program has the port.
    """

    def tell(address: str) -> None:
        words = "open, once" if server is None else "for one more browser"
        print(f"{words:<22}{address}", flush=True)

    server: ReportServer | None = None
    server = ReportServer(port, tell)
    print(f"{'on your own machine':<22}{tunnel_words(server.server_port)}", flush=True)
    print("Pages can be looked at only; Ctrl-C ends this.", flush=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        print()
    finally:
        server.server_close()
    return FINISHED
