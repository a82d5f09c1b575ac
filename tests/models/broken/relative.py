"""Part of a package, given as a file."""

from .layers import net  # noqa: F401
