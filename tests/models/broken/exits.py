"""A training script without the usual guard."""

import sys

print("training ...")
sys.exit(4)
