"""Names the images that rows of data name by path: `python image_files.py FILE…` prints each once, a line of JSON.

Only what begins as an image does is named: rows may come from anywhere, and what they name is sent to other machines.
"""

from __future__ import annotations

import json
import sys
from contextlib import suppress

import data_bounds as bounds
import data_images as images
import data_rows as rows


def main(*names: str) -> None:
    """Print the images; what cannot be read has none."""
    bounds.end_with_parent()
    bounds.limit_process_to_half_of_memory()
    seen: set[str] = set()
    for name in names:
        with suppress(rows.UnreadableError):
            for path in rows.data_files_at(name):
                for row in map(images.row_with_images_as_texts, rows.read_rows(path)):
                    named = (row.value or {}).get("images")
                    for source in named if isinstance(named, list) else ():
                        if isinstance(source, str) and source.startswith("/") and source not in seen:
                            seen.add(source)
                            if images.begins_as_image(source):
                                sys.stdout.write(json.dumps(source) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
