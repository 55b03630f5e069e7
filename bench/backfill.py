"""How fast transcripts from before the installation are taken in, and how much memory that needs.

Makes transcripts out of the recordings in tests/data (each copy with ids of its own), runs `agentmem backfill` on them
as a process, and prints bytes, seconds, MB/s and the peak of the memory that it and its processes have for themselves
(shared pages divided among those that share them), without the server.

    python bench/backfill.py [--megabytes 1024] [--json]
"""

from __future__ import annotations

import argparse
import glob
import json
import os
import re
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
    sources: list[tuple[bytes, bytes]] = []
    for file in sorted(glob.glob(os.path.join(RECORDINGS, "*", "*.jsonl"))):
        with open(file, "rb") as stream:
            sources.append((os.fsencode(os.path.basename(file)[: -len(".jsonl")]), stream.read()))
    # What the client writes about each request is cut in the recordings; here it has its real size again.
    bulk = json.dumps({"type": "api-request-shape", "shape": {"system": "words of the system prompt " * 1400}}) + "\n"
    made = written = 0
    while written < size:
        folder = os.path.join(projects, f"-project-{made % 40}")
        os.makedirs(folder, exist_ok=True)
        key = b"%08x-0000-4000-8000-000000000000" % made
        with open(os.path.join(folder, f"{key.decode()}.jsonl"), "wb") as stream:
            for part in range(1 if made % 10 else 40):
                session, source = sources[(made + part) % len(sources)]
                written += stream.write(renamed(source, {session: key}, b"%08x" % (made * 64 + part)))
                written += stream.write(bulk.encode())
        made += 1
    return made


def renamed(source: bytes, known: dict[bytes, bytes], prefix: bytes) -> bytes:
    """The lines with other ids: the session's as `known` says, all others with this beginning."""
    return _UUID.sub(lambda match: known.get(match[0]) or prefix + match[1], source)


def memory_of(pid: int) -> int:
    """Bytes that a process and those that it started have for themselves; 0 where the system doesn't tell."""
    total = 0
    try:
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as stream:
            total += sum(memory_of(int(child)) for child in stream.read().split())
        with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as stream:
            total += sum(int(line.split()[1]) * 1024 for line in stream if line.startswith("Pss:"))
    except OSError:
        # It has ended, or this is no Linux.
        return total
    return total


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
        peak = 0
        begun = time.monotonic()
        with open(os.path.join(root, "out"), "w+", encoding="utf-8") as out:
            process = subprocess.Popen([command, "backfill"], env=env, stdout=out, stderr=out)
            while process.poll() is None:
                peak = max(peak, memory_of(process.pid))
                time.sleep(0.05)
            seconds = time.monotonic() - begun
            out.seek(0)
            last = out.readlines()[-1:]
        where = paths.find_paths(env)
        cluster.stop(db.embedded(where, settings.load(where)), time.monotonic() + 20)
    finally:
        shutil.rmtree(root)
    report = {
        "files": files,
        "megabytes": size / 1e6,
        "seconds": seconds,
        "megabytes per second": size / 1e6 / seconds,
        "peak megabytes of memory": peak / 1e6,
        "exit code": process.returncode,
    }
    if options.json:
        print(json.dumps(report, indent=2))
        return
    print(*last)
    for name, value in report.items():
        print(f"{name:26} {value:10.1f}")
    print(f"targets: >= {TARGET_SPEED:.0f} MB/s, < {TARGET_MEMORY:.0f} MB")


if __name__ == "__main__":
    main()
