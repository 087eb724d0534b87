"""Output for people: columns, sizes and a progress bar."""

import sys
import time


def size(count):
    """Returns bytes as people read them.

    >>> size(1000), size(5 * 2**20)
    ('1,000 B', '5.0 MiB')
    """
    if count < 10_000:
        return f"{count:,} B"
    units = ["KiB", "MiB", "GiB", "TiB"]
    count /= 1024
    while count >= 1000 and len(units) > 1:
        count /= 1024
        del units[0]
    return f"{count:,.1f} {units[0]}"


def shown(name, limit=60):
    """Returns a name as a terminal can show it: on a line, and not too long.

    >>> print(shown("two\\nlines"), shown("x" * 100, limit=8))
    two\\nlines xxxxxxx…
    """
    name = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in name)
    return name if len(name) <= limit else name[: limit - 1] + "…"


def columns(header, rows):
    """Returns lines of aligned columns; numbers and sizes to the right.

    >>> print(columns(["name", "rows"], [["user", "1,000"], ["x", "7"]]))
    name   rows
    user  1,000
    x         7
    """
    rows = [[str(cell) for cell in row] for row in [header, *rows]]
    widths = [max(len(row[i]) for row in rows) for i in range(len(header))]
    right = [
        all(row[i][:1].isdigit() or row[i] == "" for row in rows[1:]) for i in range(len(header))
    ]
    lines = []
    for row in rows:
        cells = [
            cell.rjust(width) if is_right else cell.ljust(width)
            for cell, width, is_right in zip(row, widths, right, strict=True)
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


class Progress:
    """A bar on stderr while a command works, if that is a terminal.

    Args:
      what: the word before the bar.
    """

    def __init__(self, what):
        self._what = what
        self._shown = sys.stderr.isatty()
        self._last = 0.0

    def update(self, part, note=""):
        """Shows the part that is done, from 0 to 1, and a few words."""
        if not self._shown or time.monotonic() - self._last < 0.1:
            return
        self._last = time.monotonic()
        filled = round(30 * min(max(part, 0), 1))
        bar = "#" * filled + "-" * (30 - filled)
        print(
            f"\r{self._what} [{bar}] {part:4.0%} {note}\033[K", end="", file=sys.stderr, flush=True
        )

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        if self._shown:
            print("\r\033[K", end="", file=sys.stderr, flush=True)
