"""Finds the images of a row, looks at each of them, and writes the row as TRL takes it."""

from __future__ import annotations

import base64
import binascii
import contextlib
import hashlib
import io
import os
import re
import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import data_rows as rows

# In texts this stands for an image, as LLaVA's data has it.
IMAGE_MARK = "<image>"
MAX_IMAGE_BYTES = 64 * 2**20
# Above it Pillow warns of a picture that is made to fill the memory.
_MAX_PIXELS = 89_478_485
# A side of one or three pixels would be taken for the colours.
_MIN_SIDE_PIXELS = 4
# PNG, JPEG, GIF, BMP, TIFF, JPEG 2000 and PPM.
_IMAGE_FILE_SIGNATURES = (
    b"\x89PNG\r\n",
    b"\xff\xd8\xff",
    b"GIF8",
    b"BM",
    b"II*\0",
    b"MM\0*",
    b"\0\0\0\x0cjP",
    b"P5",
    b"P6",
)
_PLAIN_FORMATS_AND_MODES = frozenset((("JPEG", "RGB"), ("JPEG", "L"), ("PNG", "RGB"), ("PNG", "L"), ("PNG", "RGBA")))
_MODES_OF_16_BITS, _MODES_OF_32_BITS = ("I;16", "I;16B", "I;16L", "I;16N"), ("I", "F")
_PNG_DEPTH_OFFSET = 24
_EXIF_ORIENTATION, _SIDEWAYS_ORIENTATIONS = 0x0112, (5, 6, 7, 8)
_MAX_FOLDERS = 8
_MAX_IMAGES_REMEMBERED = 500_000
_THUMBNAIL_COLUMNS, _THUMBNAIL_ROWS = 32, 24
_MIN_BASE64_CHARACTERS = 64
_BASE64_PATTERN = re.compile(r"[A-Za-z0-9+/\s]+={0,2}\s*")
_DATA_URL_PATTERN = re.compile(r"data:[^,;]*(;[^,;]*)*;base64,")
_FORMATS_WITH_IMAGES = frozenset(("messages", "sharegpt", "prompt_completion", "alpaca"))
_MESSAGE_COLUMNS = ("messages", "prompt", "completion")
_TEXT_COLUMNS = (*_MESSAGE_COLUMNS, "conversations", "conversation", "instruction")
_PAYLOADS_OF_PART = ("image", "image_url", "url", "path", "base64")
_Row = dict[str, Any]


class ImageInspection(NamedTuple):
    """An image that was looked at: what is wrong with it, its pixels upright, its bytes, and whether all decode it.

    Without Pillow nothing is known of its pixels.
    """

    problem: str = ""
    width: int = 0
    height: int = 0
    size: int = 0
    plain: bool = True


class FileState(NamedTuple):
    """A file as it was: its bytes and its time of change (ns); -1 and 0 where there is none."""

    path: str
    size: int
    changed: int


# What this program found in files, and what is known of others that are still the same.
inspections: dict[FileState, ImageInspection] = {}
known_inspections: dict[FileState, ImageInspection] = {}


def row_with_images_as_texts(row: rows.DataRow) -> rows.DataRow:
    """Return a row whose images, wherever they were, are texts in `images`: paths that are absolute, or base64.

    A row without any stays as it is.
    """
    value = row.value
    if value is None or not _mentions_images(value):
        return row
    folder = Path(row.file).absolute().parent
    several, one = value.get("images"), value.get("image")
    given = [*(several if isinstance(several, list) else [several]), one]
    if Path(row.file).stem == "metadata":
        # So a folder of images names them for datasets.
        given.append(value.get("file_name"))
    waiting = [each for each in given if each is not None and each != ""]
    found: list[Any] = []
    made = {name: inner for name, inner in value.items() if name not in {"image", "images", "file_name"}}
    for column in _MESSAGE_COLUMNS:
        if isinstance(made.get(column), list):
            made[column] = [_without_payloads(message, waiting, found) for message in made[column]]
    return row._replace(value={**made, "images": [_source_as_text(each, folder) for each in (*found, *waiting)]})


def _mentions_images(value: _Row) -> bool:
    if any(value.get(column) not in (None, "") for column in ("image", "images")):
        return True
    if "file_name" in value and any(column in value for column in _TEXT_COLUMNS):
        return True
    messages = (
        each for column in _MESSAGE_COLUMNS for each in _list_or_empty(value.get(column)) if isinstance(each, dict)
    )
    return any(_is_image_part(part) for each in messages for part in _list_or_empty(each.get("content")))


def _list_or_empty(content: Any) -> list[Any]:
    return content if isinstance(content, list) else []


def _is_image_part(part: Any) -> bool:
    return isinstance(part, dict) and part.get("type") in {"image", "image_url"}


def _without_payloads(message: Any, waiting: list[Any], found: list[Any]) -> Any:
    """Return a message whose image parts only hold the place; each part's image joins those found, in order."""
    if not isinstance(message, dict) or not isinstance(message.get("content"), list):
        return message
    content: list[Any] = []
    for part in message["content"]:
        if not _is_image_part(part):
            content.append(part)
            continue
        held = next((part[name] for name in _PAYLOADS_OF_PART if part.get(name) is not None), None)
        if isinstance(held, dict) and "url" in held:
            held = held["url"]
        if held is not None:
            found.append(held)
        elif waiting:
            found.append(waiting.pop(0))
        content.append({"type": "image"})
    return {**message, "content": content}


def _source_as_text(source: Any, folder: Path) -> Any:
    """Return an image as a text: a path, or base64 as a data URL; as it is where it is neither."""
    if isinstance(source, dict):
        source = source.get("path") if source.get("bytes") is None else source["bytes"]
    if isinstance(source, bytes):
        return "data:image/*;base64," + base64.b64encode(source).decode()
    if not isinstance(source, str) or source.startswith(("http://", "https://", "data:")):
        return source
    path = source.removeprefix("file://")
    long = len(source) >= _MIN_BASE64_CHARACTERS
    if long and _BASE64_PATTERN.fullmatch(source) and (len(source) > 4096 or not (folder / path).is_file()):
        return "data:image/*;base64," + source
    return str(folder / path)


def image_problem(row: _Row, format_name: str) -> str:
    """Return what is wrong with the images of a row, or their places in its texts; empty where nothing is."""
    sources = row.get("images")
    if sources is None:
        return ""
    if sources and format_name not in _FORMATS_WITH_IMAGES:
        return "has images, which only SFT learns from here: of messages, or prompt and completion"
    for number, source in enumerate(sources, start=1):
        if why := inspect_image_source(source).problem:
            return f"image {number} {why}"
    places = _image_place_count(row)
    if places and places != len(sources):
        images = "1 image" if len(sources) == 1 else f"{len(sources) or 'no'} images"
        return f"has {images}, and {places} {'place' if places == 1 else 'places'} for one ({IMAGE_MARK})"
    return ""


def _image_place_count(row: _Row) -> int:
    """Return how many places for an image the texts of a row have."""
    count = 0
    for column in _TEXT_COLUMNS:
        turns = row.get(column)
        for turn in turns if isinstance(turns, list) else [{"content": turns}]:
            content = (turn.get("content", turn.get("value")) or "") if isinstance(turn, dict) else ""
            if isinstance(content, str):
                count += content.count(IMAGE_MARK)
            for part in _list_or_empty(content):
                text = part.get("text") if isinstance(part, dict) else ""
                count += 1 if _is_image_part(part) else text.count(IMAGE_MARK) if isinstance(text, str) else 0
    return count


_inspection_by_digest: dict[bytes, ImageInspection] = {}


def inspect_image_source(source: Any) -> ImageInspection:
    """Look at an image once: it is read and decoded whole, as one that is cut off would end a training."""
    if not isinstance(source, str):
        return ImageInspection("is neither a path nor base64")
    if source.startswith(("http://", "https://")):
        return ImageInspection("is a URL, which is never loaded: download it, and name the file")
    digest = hashlib.blake2b(source.encode("utf-8", "replace"), digest_size=16).digest()
    if digest not in _inspection_by_digest:
        if len(_inspection_by_digest) >= _MAX_IMAGES_REMEMBERED:
            _inspection_by_digest.clear()
        _inspection_by_digest[digest] = (
            _inspect_uncached(source) if source.startswith("data:") else _inspect_image_file(source)
        )
    return _inspection_by_digest[digest]


def file_state(path: str) -> FileState:
    """Return the state of a file now."""
    try:
        status = Path(path).stat()
    except (OSError, ValueError):
        return FileState(path, -1, 0)
    return FileState(path, status.st_size, status.st_mtime_ns)


def _inspect_image_file(path: str) -> ImageInspection:
    state = file_state(path)
    look = known_inspections.get(state)
    inspections[state] = _inspect_uncached(path) if look is None else look
    return inspections[state]


def begins_as_image(path: str) -> bool:
    """Return whether a file begins as an image of a usual kind does."""
    with contextlib.suppress(OSError, ValueError, rows.UnreadableError), rows.open_regular_file(path) as file:
        begin = file.read(12)
        return (
            begin.startswith(_IMAGE_FILE_SIGNATURES)
            or begin[4:8] == b"ftyp"
            or (begin[:4], begin[8:]) == (b"RIFF", b"WEBP")
        )
    return False


def folders_of_inspected_images() -> list[str]:
    """Return some folders in or below which all images lie that were looked at."""
    decoded = has_pillow()
    seen = [state.path for state, look in inspections.items() if state.size >= 0 and not look.problem]
    folders = {Path(os.path.normpath(path)).parent for path in seen if decoded or begins_as_image(path)}
    while len(folders) > _MAX_FOLDERS:
        folders = {folder.parent for folder in folders}
    return sorted(str(folder) for folder in folders if not folders & {*folder.parents})


def _inspect_uncached(source: str) -> ImageInspection:
    try:
        data = _image_bytes(source)
        return _decode_and_inspect(data) if has_pillow() else ImageInspection(size=len(data))
    except rows.UnreadableError as error:
        return ImageInspection(str(error))


def _decode_and_inspect(data: bytes) -> ImageInspection:
    """Return what Pillow finds in an image; UnreadableError for what it cannot decode."""
    from PIL import Image

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with Image.open(io.BytesIO(data)) as image:
                width, height = image.size
                # torchvision, which reads it for a processor, decodes no other kinds alike.
                plain = (image.format, image.mode) in _PLAIN_FORMATS_AND_MODES and not _has_16_bits(image, data)
                _refuse_kind(image)
                if image.getexif().get(_EXIF_ORIENTATION, 1) in _SIDEWAYS_ORIENTATIONS:
                    width, height = height, width
                _refuse_unusable_size(width, height)
                # Of a JPEG an eighth is decoded, which finds all that is missing as well.
                image.draft("RGB", (1, 1))
                image.load()
    except rows.UnreadableError:
        raise
    except Image.DecompressionBombError:
        why = f"has more than {2 * _MAX_PIXELS / 1e6:.0f} megapixels: make it smaller"
        raise rows.UnreadableError(why) from None
    except Image.UnidentifiedImageError:
        raise rows.UnreadableError("is of no kind of image that Pillow reads") from None
    except Exception as error:  # noqa: BLE001 - each decoder has errors of its own
        raise rows.UnreadableError(f"is damaged: {str(error) or type(error).__name__}"[:200]) from None
    return ImageInspection("", width, height, len(data), plain)


def _has_16_bits(image: Any, data: bytes) -> bool:
    # Of colours Pillow's mode does not tell it; Pillow before 11 opens a grey PNG of 16 bits as `I`.
    deep_png = image.format == "PNG" and data[_PNG_DEPTH_OFFSET] == 16
    return deep_png or image.mode in _MODES_OF_16_BITS


def _refuse_kind(image: Any) -> None:
    if image.format == "EPS":
        # Pillow runs Ghostscript for it, on a program that came with the data.
        raise rows.UnreadableError("is EPS, a program that draws: save it as PNG")
    if image.mode in _MODES_OF_32_BITS and image.format != "PNG":
        raise rows.UnreadableError("has 32 bits a pixel, of which none says what is white: save it with 8 or 16")


def _refuse_unusable_size(width: int, height: int) -> None:
    if width * height > _MAX_PIXELS:
        most = f"{_MAX_PIXELS / 1e6:.0f} megapixels"
        raise rows.UnreadableError(f"is {width} x {height}, more than {most}: make it smaller")
    if min(width, height) < _MIN_SIDE_PIXELS:
        raise rows.UnreadableError(f"is {width} x {height}: each side must have {_MIN_SIDE_PIXELS} pixels or more")


def _image_bytes(source: str) -> bytes:
    """Return the bytes of a path or of base64; UnreadableError where there are none, or too many."""
    if source.startswith("data:"):
        begin = _DATA_URL_PATTERN.match(source)
        if begin is None:
            raise rows.UnreadableError("is a data URL without base64")
        try:
            # As the processors decode it: what is no base64 is not skipped here.
            data = base64.b64decode("".join(source[begin.end() :].split()), validate=True)
        except (binascii.Error, ValueError):
            raise rows.UnreadableError("is not base64") from None
        return _require_nonempty(data)
    try:
        with rows.open_regular_file(source) as file:
            data = file.read(MAX_IMAGE_BYTES + 1)
    except OSError as error:
        raise rows.UnreadableError(f"cannot be read: {error.strerror or error}") from None
    except rows.UnreadableError as error:
        raise rows.UnreadableError(f"({source[-120:]}) {error}") from None
    if len(data) > MAX_IMAGE_BYTES:
        raise rows.UnreadableError(f"({source[-120:]}) is larger than {MAX_IMAGE_BYTES >> 20} MiB")
    return _require_nonempty(data)


def _require_nonempty(data: bytes) -> bytes:
    if not data:
        raise rows.UnreadableError("is empty")
    return data


def row_with_image_places(row: _Row) -> _Row:
    """Return a converted row of data with images as TRL takes it: messages in parts, `images` in each row."""
    row = _texts_as_messages(row)
    sources = row.get("images") or []
    placed = sources and _image_place_count(row)
    made: _Row = {**row, "images": sources}
    first = True
    for column in _MESSAGE_COLUMNS:
        if not isinstance(made.get(column), list):
            continue
        turns = []
        for message in made[column]:
            parts = _content_in_parts(message.get("content"), split=bool(sources))
            if sources and not placed and first and message.get("role") == "user":
                parts, first = [*({"type": "image"} for _ in sources), *parts], False
            turns.append({**message, "content": parts})
        made[column] = turns
    return made


def _texts_as_messages(row: _Row) -> _Row:
    if isinstance(row.get("prompt"), str) and isinstance(row.get("completion"), str):
        asked, answered = (
            {"role": "user", "content": row["prompt"]},
            {"role": "assistant", "content": row["completion"]},
        )
        return {**row, "prompt": [asked], "completion": [answered]}
    return row


def _content_in_parts(content: Any, *, split: bool) -> list[_Row]:
    parts: list[_Row] = []
    for part in content if isinstance(content, list) else [{"type": "text", "text": content or ""}]:
        text = part.get("text")
        if not split or _is_image_part(part) or not isinstance(text, str) or IMAGE_MARK not in text:
            parts.append(part)
            continue
        before, *after = text.split(IMAGE_MARK)
        parts += [{"type": "text", "text": before}] if before else []
        for each in after:
            # LLaVA's data has a line break between the two, which its chat template writes itself.
            words = each.removeprefix("\n")
            parts += [{"type": "image"}, *([{"type": "text", "text": words}] if words else [])]
    return parts


def has_pillow() -> bool:
    """Return whether this Python can look into an image."""
    return find_spec("PIL") is not None


def fitted_size(width: int, height: int, max_pixels: int) -> tuple[int, int]:
    """Return the size of an image of so many pixels at most, 0 for any number."""
    if not max_pixels or width * height <= max_pixels:
        return width, height
    scale = (max_pixels / (width * height)) ** 0.5
    return max(_MIN_SIDE_PIXELS, int(width * scale)), max(_MIN_SIDE_PIXELS, int(height * scale))


def with_trainable_images(row: _Row, max_pixels: int) -> tuple[_Row, int]:
    """Return a row whose images have so many pixels at most, as PNG or JPEG, and how many were made smaller."""
    made, count = [], 0
    for source in row.get("images") or ():
        look = inspect_image_source(source)
        size = fitted_size(look.width, look.height, max_pixels)
        smaller = size != (look.width, look.height)
        made.append(source if look.plain and not smaller else _rewritten_image(source, size, smaller=smaller))
        count += smaller
    return {**row, "images": made}, count


def _rewritten_image(source: str, size: tuple[int, int], *, smaller: bool) -> str:
    from PIL import Image

    upright = upright_image(source)
    written, kind = io.BytesIO(), "JPEG" if smaller else "PNG"
    (upright.resize(size, Image.Resampling.LANCZOS) if smaller else upright).save(written, kind, quality=95)
    return f"data:image/{kind.lower()};base64," + base64.b64encode(written.getvalue()).decode()


def upright_image(source: str) -> Any:
    """Return an image that was looked at as Pillow has it: upright, with 8 bits for each colour."""
    from PIL import Image, ImageOps

    with Image.open(io.BytesIO(_image_bytes(source))) as image:
        return _in_8_bit_colours(ImageOps.exif_transpose(image))


def _in_8_bit_colours(image: Any) -> Any:
    if image.mode in (*_MODES_OF_16_BITS, "I"):
        # Pillow's own would make all white that is brighter than 255 of 65535.
        image = image.convert("I").point(lambda value: value * (1 / 257)).convert("L")
    return image.convert("RGB")


def described_images(row: _Row) -> list[dict[str, Any]]:
    """Return what is shown of the images of a row: name, size, and a tiny picture as lines of colours."""
    return [_described_image(source) for source in row.get("images") or ()]


def _described_image(source: str) -> dict[str, Any]:
    look = inspect_image_source(source)
    name = "in the row" if source.startswith("data:") else source[-300:]
    shown: dict[str, Any] = {
        "name": name,
        "width": look.width,
        "height": look.height,
        "size": look.size,
        "thumbnail": [],
    }
    try:
        small = upright_image(source)
        small.thumbnail((_THUMBNAIL_COLUMNS, _THUMBNAIL_ROWS))
        shown["thumbnail"] = [small.crop((0, top, small.width, top + 1)).tobytes().hex() for top in range(small.height)]
    except Exception:  # noqa: BLE001 - it is shown in words then
        return shown
    return shown
