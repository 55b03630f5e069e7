"""Hook of SessionStart: sweeps, then prints the digest; see agentmem/hook.py.

Registered as: <python> -I -S <this file> <client> <event> [--home FOLDER]
"""

import os
import sys

_here = os.path.dirname(os.path.abspath(__file__))
_parent = os.path.dirname(_here)
sys.path.append(os.path.dirname(_parent) if os.path.basename(_here) == "_hooks" else _parent)

from agentmem.hook import main  # noqa: E402

main("session_start", sys.argv[1:])
