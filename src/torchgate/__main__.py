"""``python -m torchgate`` is the same as ``torchgate``."""

from torchgate.cli import main

main()
