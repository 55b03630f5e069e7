"""One of many processes that want the server at the same moment; run as a hook is, with -I -S.

Arguments: folder of the package, home, folder of programs, create (0 or 1), idle minutes. Says "up" when it is ready,
waits for the end of stdin, then prints: what came of it, milliseconds until a query was answered, the message.
"""

import sys
import time


def main(package_parent: str, home: str, bin_dir: str, create: str, idle_minutes: str) -> None:
    sys.path.insert(0, package_parent)
    from agentmem import cluster, handshake
    from agentmem.errors import ClusterError
    from agentmem.paths import find_paths

    sys.stdout.write("up\n")
    sys.stdout.flush()
    sys.stdin.read()
    begun = time.monotonic()
    message = ""
    try:
        server = cluster.cluster_for(find_paths({}, home), bin_dir)
        started = cluster.ensure_running(server, begun + 30, create=create == "1", idle_minutes=float(idle_minutes))
        handshake.query(server.socket_path, "agentmem", "select 1", begun + 30)
        outcome = "started" if started else "running"
    except ClusterError as error:
        outcome, message = error.code, error.message
    sys.stdout.write(f"{outcome} {(time.monotonic() - begun) * 1000:.1f} {message!a}\n")


main(*sys.argv[1:])
