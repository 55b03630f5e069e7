"""One of many processes that want the server at the same moment; run as a hook is, with -I -S.

Arguments: folder of the package, home, folder of programs, create (0 or 1), idle minutes, seconds. Says "up" when it
is ready, waits for the end of stdin, then prints: what came of it, milliseconds until a query was answered, a message.
"""

import sys
import time


def main(package_parent: str, home: str, bin_dir: str, create: str, idle_minutes: str, seconds: str) -> None:
    sys.path.insert(0, package_parent)
    from agentmem import cluster, handshake
    from agentmem.errors import ClusterError
    from agentmem.paths import find_paths

    sys.stdout.write("up\n")
    sys.stdout.flush()
    sys.stdin.read()
    begun = time.monotonic()
    deadline = begun + float(seconds)
    message = ""
    try:
        server = cluster.cluster_for(find_paths({}, home), bin_dir)
        started = cluster.ensure_running(server, deadline, create=create == "1", idle_minutes=float(idle_minutes))
        handshake.query(server.socket_path, "agentmem", "select 1", deadline)
        outcome = "started" if started else "running"
    except ClusterError as error:
        outcome, message = error.code, error.message
    except (OSError, EOFError) as error:
        outcome, message = "lost", repr(error)
    sys.stdout.write(f"{outcome} {(time.monotonic() - begun) * 1000:.1f} {message!a}\n")


main(*sys.argv[1:])
