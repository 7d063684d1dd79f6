"""Where the parts of mortise-bench lie. The program that the user starts sets it, before all else."""

from pathlib import Path

programs = Path()  # adapter-NAME, mortise-bench-digest
servers = Path()  # servers.sh, with servers/ beside it
rivals = Path()  # the rivals' adapters
build_type = ""  # of the programs


def adapter(name: str) -> Path:
    return programs / f"adapter-{name}"


def digest() -> Path:
    return programs / "mortise-bench-digest"
