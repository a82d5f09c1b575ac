"""Files that a configuration names: relative to the file that names them, checked to be there, secrets read."""

from __future__ import annotations

import os
from pathlib import Path as FilePath

from torchgate.errors import ConfigError
from torchgate.schema.document.mistakes import Path
from torchgate.schema.document.reading import Reading
from torchgate.schema.document.secrets import MAX_SECRET, Secret, SecretFile
from torchgate.schema.target import check_readable


class Files:
    """Looks at files for a reading; what is wrong with them is noted there."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._folders: dict[str, bool] = {}

    def absolute(self, file: str, path: Path) -> str:
        """Return the absolute path of a file named at ``path``."""
        folder = self._reading.sources.owner(path).folder
        return os.path.normpath(os.path.join(folder, os.path.expanduser(file)))

    def readable(self, file: str, path: Path) -> str:
        """Return the absolute path of a file that has to be readable; empty for none named."""
        if not file:
            return ""
        found = self.absolute(file, path)
        try:
            check_readable(FilePath(found), file)
            if not os.path.isfile(found):
                self._reading.wrong(path, f"{file} is no regular file")
        except (ConfigError, OSError, ValueError) as error:
            self._reading.wrong(path, str(error), getattr(error, "hint", ""))
        return found

    def folder(self, file: str, path: Path) -> str:
        """Return the absolute path of a folder that has to be there."""
        found = self.absolute(file, path)
        is_there = self._folders.get(found)
        if is_there is None:
            is_there = self._folders[found] = os.path.isdir(found)
        if not is_there:
            what = "is no folder" if os.path.exists(found) else "doesn't exist"
            self._reading.wrong(path, f"the folder {file} {what}")
        return found

    def text(self, file: str, path: Path) -> str:
        """Return what a text file holds; empty when none is named or it can't be read."""
        found = self.readable(file, path)
        if not found or not os.path.isfile(found):
            return ""
        try:
            return FilePath(found).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            self._reading.wrong(path, f"{file} {_reason(error)}")
            return ""

    def secret(self, value: Secret, path: Path) -> str:
        """Return a secret text. Its content is never part of a message."""
        if not isinstance(value, SecretFile):
            return str(value)
        found = self.readable(value.file, path)
        if not found or not os.path.isfile(found):
            return ""
        try:
            if os.path.getsize(found) > MAX_SECRET:
                self._reading.wrong(path, f"{value.file} is larger than {MAX_SECRET // 1024} KiB")
                return ""
            content = FilePath(found).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            self._reading.wrong(path, f"{value.file} {_reason(error)}")
            return ""
        return content.removesuffix("\n").removesuffix("\r")


def _reason(error: OSError | UnicodeDecodeError) -> str:
    """Return why a file is no text; never what it holds."""
    if isinstance(error, UnicodeDecodeError):
        return f"is not UTF-8 at byte {error.start + 1}"
    return f"can't be read: {error.strerror}"
