"""Names of files and folders that are not text: the one list for whatever is walked.

It holds for folders, archives, URLs of directories and evaluation files alike. A file that the user
names is read, whatever its name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from pipeline.base.errors import shown_name

BY_NAME = "skipped by its name"
"""Reason for which a file in an archive is dropped."""
_TEXT_ENDINGS = {
    "txt", "text", "utf8", "utf-8", "md", "markdown", "mkd", "rst", "adoc", "asciidoc", "org",
    "tex", "wiki", "mediawiki", "story", "article", "body", "srt", "vtt", "fountain",
}  # fmt: skip
"""Endings of plain text in an archive, where nothing else tells it from labels and settings."""
_COMPRESSED = re.compile(r"\.(?:gz|zst|xz|bz2)$", re.IGNORECASE)
_ENDING = re.compile(r"[^/]\.([^/.]*[^\W\d][^/.]*)$")
_SHORT = re.compile(r"[\w-]{1,8}")
_NAMED = 5
"""At most this many are listed by name."""

# Hidden; of a job that writes (_temporary, _SUCCESS, _metadata of Spark); copies of editors,
# half downloads; what file managers, disks and archives of other systems add.
_NO_TEXT = re.compile(
    r"[._].*|.*~|.*\.(?:bak|tmp|part|partial|crdownload|swp)|#.*#|@eaDir|lost\+found|Thumbs\.db"
    r"|desktop\.ini",
    re.IGNORECASE | re.DOTALL,
)
_LICENCES = r"mit|apache|l?gpl|bsd|mpl|cc[\w.-]*|v?\d[\d.]*"
_LANGUAGES = r"[a-z]{2}(?:[-_](?:cn|tw|hk|br|pt|us|gb|hans|hant))?"
# Only with endings of licences and languages: license_to_kill.txt is a book.
_DESCRIBES = re.compile(
    r"(?:read[-_.]?me|licen[cs]e|copying|copyright|notice|credits|authors|contributors|citation|"
    r"change[-_.]?log|sources|datasheet|dataset[-_.]?card)"
    rf"(?:[-_.](?:{_LICENCES}|{_LANGUAGES}|1st|first))*"
    r"(?:\.(?:md|markdown|rst|txt|html?|cff|bib|tex|adoc|pdf))?"
    r"|metadata\.(?:csv|tsv|json)"
    r"|(?:.*[-_.])?(?:md5|sha\d*|check|crc32|b2)sums?(?:\.txt)?|(?:md5|sha\d+|b2)sums?[-_.].*"
    r"|.*\.(?:md5|sha\d+|crc32|sig|crc)|.*\.\w+\.asc",
    re.IGNORECASE | re.DOTALL,
)


def is_skipped_name(name: str, *, is_folder: bool = False) -> bool:
    """True if an entry of a folder is skipped: it is not text, or a file that describes others."""
    return bool(_NO_TEXT.fullmatch(name) or not (is_folder or _DESCRIBES.fullmatch(name) is None))


def is_skipped_path(path: str) -> bool:
    """True if a file, given by its path below what is walked, or a folder on it is skipped."""
    *folders, name = [part for part in path.split("/") if part not in ("", ".", "..")] or [""]
    return is_skipped_name(name) or any(is_skipped_name(part, is_folder=True) for part in folders)


def why_not_text(path: str) -> str:
    """Why a file in an archive is not a document though its bytes may be text; empty if it is one.

    A name without an ending tells nothing, so such a file is one; digits are not an ending.
    """
    found = _ENDING.search(_COMPRESSED.sub("", path))
    ending = found[1].lower() if found else "txt"
    if ending in _TEXT_ENDINGS:
        return ""
    # Reasons are counted, so there must not be one for each file.
    shown = f", .{ending}" if _SHORT.fullmatch(ending) else ""
    return f"not a text by its ending{shown}"


@dataclass(slots=True)
class SkippedNames:
    """What a walk skipped: the number, and the first names."""

    number: int = 0
    names: list[str] = field(default_factory=list)

    def add(self, names: Iterable[str]) -> None:
        """Count names, those of folders with a slash at the end."""
        for name in names:
            self.number += 1
            if len(self.names) < _NAMED:
                self.names.append(shown_name(name))

    def tell(self, where: str) -> None:
        """Print how many were skipped, if any."""
        if self.number:
            more = f" and {self.number - _NAMED:,} more" if self.number > _NAMED else ""
            print(
                f"note: {where}: {self.number:,} file(s) and folder(s) are skipped by their names "
                f"({', '.join(self.names)}{more}); to read one, give its path"
            )
