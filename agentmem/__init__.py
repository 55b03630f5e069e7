"""agentmem: verifiable memory for coding agents.

Two towers stand on one ground. The fast tower (what hooks import) uses the standard library only, and of
that only what is cheap to load; the main tower (command line, doctor, backfill) uses real libraries.
`tests/test_architecture.py` holds who may import whom.
"""

VERSION = "0.1.0"

SCHEMA = 3
"""The newest migration in `sql/` that this version knows."""
