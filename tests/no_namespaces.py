"""Run a command as a root that may make no user namespaces, as in a container. Arguments: how many ids, command.

With all ids it can become another account; with one id it can't.
"""

import ctypes
import os
import sys

ids, command = sys.argv[1], sys.argv[2:]
inside_read, inside_write = os.pipe()
mapped_read, mapped_write = os.pipe()
child = os.fork()
if child == 0:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(0x10000000) != 0:
        sys.exit(f"unshare: {os.strerror(ctypes.get_errno())}")
    os.write(inside_write, b"y")
    os.read(mapped_read, 1)
    with open("/proc/sys/user/max_user_namespaces", "w", encoding="ascii") as limit:
        limit.write("0")
    os.execvp(command[0], command)  # noqa: S606
os.read(inside_read, 1)
for kind in ("uid", "gid"):
    with open(f"/proc/{child}/{kind}_map", "w", encoding="ascii") as ids_map:
        ids_map.write(f"0 0 {ids}")
os.write(mapped_write, b"y")
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
