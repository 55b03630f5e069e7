"""Times as agentmem writes and says them; the clock itself comes in as an argument."""

from __future__ import annotations

import time


def iso_time(moment: float) -> str:
    """A time in seconds since 1970 as ISO 8601 in UTC, to the microsecond."""
    whole = int(moment // 1)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(whole)) + f".{int((moment - whole) * 1e6):06d}+00:00"


def span(seconds: float) -> str:
    """A length of time in words: "5 minutes". Never negative: clocks differ."""
    for unit, size in (("day", 86400), ("hour", 3600), ("minute", 60)):
        count = int(seconds // size)
        if count >= 1:
            return f"{count} {unit}{'' if count == 1 else 's'}"
    return "less than a minute"
