"""How fast transcripts from before the installation are taken in, and how much memory that needs.

Makes transcripts out of the recordings in tests/data (each copy with ids of its own), runs `agentmem backfill` on them
as a process, and prints bytes, seconds, MB/s and the peak of its resident memory.

    python bench/backfill.py [--megabytes 1024] [--json]
"""

from __future__ import annotations

import argparse
import glob
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time

from agentmem import cluster, db, paths, settings

RECORDINGS = os.path.join(
    os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "tests", "data", "claude", "transcripts"
)
TARGET_SPEED = 20.0
TARGET_MEMORY = 200.0
_UUID = re.compile(rb"\b[0-9a-f]{8}(-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})\b")


def make_transcripts(projects: str, size: int) -> int:
    """Write copies of the recordings until they have `size` bytes; how many files. Some sessions are long ones."""
    sources: list[bytes] = []
    for file in sorted(glob.glob(os.path.join(RECORDINGS, "**", "*.jsonl"), recursive=True)):
        with open(file, "rb") as stream:
            sources.append(stream.read())
    # What the client writes about each request is cut in the recordings; here it has its real size again.
    bulk = json.dumps({"type": "api-request-shape", "shape": {"system": "words of the system prompt " * 1400}}) + "\n"
    made = written = 0
    while written < size:
        folder = os.path.join(projects, f"-project-{made % 40}")
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, f"{made:08x}-0000-4000-8000-000000000000.jsonl"), "wb") as stream:
            for part in range(1 if made % 10 else 40):
                prefix = b"%08x" % (made * 64 + part)
                source = sources[(made + part) % len(sources)]
                written += stream.write(_UUID.sub(lambda match, prefix=prefix: prefix + match[1], source))
                written += stream.write(bulk.encode())
        made += 1
    return made


def main() -> None:
    """See the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=1024)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    root = tempfile.mkdtemp(prefix="am-bench-")
    env = {"HOME": root, "AGENTMEM_HOME": os.path.join(root, "am"), "PATH": os.environ["PATH"]}
    command = os.path.join(os.path.dirname(sys.executable), "agentmem")
    try:
        size = options.megabytes << 20
        files = make_transcripts(os.path.join(root, ".claude", "projects"), size)
        subprocess.run([command, "init"], env=env, check=True, stdout=subprocess.DEVNULL)
        # Only now: what git and others needed before is not counted.
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
        begun = time.monotonic()
        done = subprocess.run([command, "backfill"], env=env, check=False, capture_output=True, text=True)
        seconds = time.monotonic() - begun
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
        where = paths.find_paths(env)
        cluster.stop(db.embedded(where, settings.load(where)), time.monotonic() + 20)
    finally:
        shutil.rmtree(root)
    report = {
        "files": files,
        "megabytes": size / 1e6,
        "seconds": seconds,
        "megabytes per second": size / 1e6 / seconds,
        "peak megabytes of memory": peak,
        "exit code": done.returncode,
    }
    if options.json:
        print(json.dumps(report, indent=2))
        return
    print(done.stdout + done.stderr)
    for name, value in report.items():
        print(f"{name:26} {value:10.1f}")
    print(f"targets: >= {TARGET_SPEED:.0f} MB/s, < {TARGET_MEMORY:.0f} MB (init alone took {before / 1024:.0f} MB)")


if __name__ == "__main__":
    main()
