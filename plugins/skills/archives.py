"""Unpacking archives with skills into memory, within limits; nothing is written to disk.

Only plain files and folders are accepted. What an archive says about its sizes is not believed: what is unpacked is counted.
"""

from __future__ import annotations

import io
import stat
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Iterator

from plugins.skills.skill_file import SkillInvalid
from plugins.skills.skill_folder import MOST_BYTES, MOST_FILES, check_names

ARCHIVE_BYTES = 32 * 1024 * 1024
"""Maximum bytes of an archive."""

DIRECTORY_BYTES = 1024 * 1024
"""Maximum bytes of the directory at the end of a zip file, which is read as a whole."""

MOST_MEMBERS = 10 * MOST_FILES
"""Maximum files and folders in an archive, which may contain several skills."""

_END, _END_BYTES = b"PK\x05\x06", 22
_LOCATOR, _LOCATOR_BYTES = b"PK\x06\x07", 20
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


def unpack(content: bytes) -> dict[str, bytes]:
    """Return the files of a `.zip` or `.tar.gz` by path. Blocks.

    Raises:
        SkillInvalid: It is neither, damaged, too large, or contains something else than plain files and folders.
    """
    if content.startswith(b"PK"):
        members = _zipped
    elif content.startswith(b"\x1f\x8b"):
        members = _tarred
    else:
        raise SkillInvalid("The file is neither a zip nor a tar.gz archive.")
    files: dict[str, bytes] = {}
    try:
        for path, data in members(content):
            if path in files:
                raise SkillInvalid(f"The archive contains {path[:200]!r} twice.")
            files[path] = data
    except SkillInvalid:
        raise
    except Exception as error:  # the parsers raise anything for damaged files
        raise SkillInvalid("The archive is damaged.") from error
    check_names(files, MOST_MEMBERS)
    return files


def _zipped(content: bytes) -> Iterator[tuple[str, bytes]]:
    _check_directory(content)
    left = MOST_BYTES
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        for count, member in enumerate(archive.infolist(), 1):
            mode = member.external_attr >> 16
            if stat.S_IFMT(mode) not in (0, stat.S_IFREG, stat.S_IFDIR):
                raise _no_file(member.filename)
            if member.is_dir():
                continue
            if member.flag_bits & 1 or member.compress_type not in _METHODS:
                raise SkillInvalid(f"{member.filename[:200]!r} is encrypted, or compressed by an unusual method.")
            with archive.open(member) as file:
                data = file.read(left + 1)
            left = _room(left, data, count)
            yield member.orig_filename, data


def _check_directory(content: bytes) -> None:
    """Refuse a zip file whose directory is large, or described by the extension for large files."""
    end = content.rfind(_END, max(0, len(content) - _END_BYTES - 0xFFFF))
    if end < 0 or len(content) < end + _END_BYTES:
        raise SkillInvalid("The archive is damaged.")
    (size,) = struct.unpack_from("<L", content, end + 12)
    if size > DIRECTORY_BYTES or content[max(0, end - _LOCATOR_BYTES) :].startswith(_LOCATOR):
        raise SkillInvalid("The archive contains too many files.")


def _tarred(content: bytes) -> Iterator[tuple[str, bytes]]:
    most = 2 * MOST_BYTES
    decompressor = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
    unpacked = decompressor.decompress(content, most)
    if len(unpacked) == most:
        raise _too_large()
    if not decompressor.eof:
        raise SkillInvalid("The archive is damaged.")
    left = MOST_BYTES
    with tarfile.open(fileobj=io.BytesIO(unpacked), mode="r:") as archive:
        for count, member in enumerate(archive, 1):
            if member.isdir():
                continue
            file = archive.extractfile(member) if member.isreg() else None
            if file is None:
                raise _no_file(member.name)
            data = file.read(left + 1)
            left = _room(left, data, count)
            yield member.name.removeprefix("./"), data


def _room(left: int, data: bytes, count: int) -> int:
    if len(data) > left:
        raise _too_large()
    if count > MOST_MEMBERS:
        raise SkillInvalid("The archive contains too many files.")
    return left - len(data)


def _too_large() -> SkillInvalid:
    return SkillInvalid(f"The archive has more than {MOST_BYTES >> 20} MiB when it is unpacked.")


def _no_file(name: str) -> SkillInvalid:
    return SkillInvalid(f"{name[:200]!r} in the archive is a link or a device, not a file.")
