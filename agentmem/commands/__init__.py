"""The commands of the command line, one noun a file; each module's `command` is what `agentmem.cli` loads."""
