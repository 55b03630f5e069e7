"""SHA-256 without `import hashlib`, which costs a hook 3 ms."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from hashlib import sha256
else:
    try:
        from _sha2 import sha256
    except ImportError:
        try:
            from _sha256 import sha256
        except ImportError:
            from hashlib import sha256

__all__ = ["hexdigest", "sha256"]


_LONG = 1 << 19


def hexdigest(data: bytes) -> str:
    """SHA-256 of the bytes, 64 lower-case hexadecimal digits."""
    if len(data) < _LONG:
        return sha256(data).hexdigest()
    # OpenSSL's takes a tenth of the time, and 3 ms to load.
    from hashlib import sha256 as quicker

    return quicker(data).hexdigest()
