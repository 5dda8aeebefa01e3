"""Verify an exported bundle: python3 verify.py BUNDLE.tar [--signer KEY.pub]

Needs only Python 3.8 or newer. Every byte of the archive is checked: its structure, the SHA-256 of each file, the chain of
sums of each journal, and, if ssh-keygen is installed, the signature. The exit code is 0 if everything agrees, else 1.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile

NAMESPACE = "exuvia-export"
SUMS, MANIFEST, SIGNATURE, SIGNER, VERIFIER = "SHA256SUMS", "manifest.json", "manifest.json.sig", "signer.pub", "verify.py"
BLOCK = 512
TRAILER = 27
SHAPE = re.compile(rb'\A\{"seq":([1-9][0-9]{0,18}),"at":"[^"]{20,30}","turn":(?:null|[0-9]+),"kind":"')
NAME = re.compile(
    r"sessions/[A-Za-z0-9][A-Za-z0-9_-]{0,63}\.jsonl|attachments/[0-9a-f]{64}"
    r"|SHA256SUMS|manifest\.json|manifest\.json\.sig|signer\.pub|verify\.py"
)
CLOSING = re.compile(rb',"sum":"([0-9a-f]{16})"\}\n\Z')


class Fault(Exception):
    """The bundle is not what was exported; the text says where."""


def header(name: str, size: int) -> bytes:
    """Return the only header that a file of this name and size may have."""
    member = tarfile.TarInfo(name)
    member.size, member.mode = size, 0o644
    return member.tobuf(tarfile.USTAR_FORMAT, "ascii", "strict")


def read_archive(content: bytes) -> dict[str, bytes]:
    """Return the files of an archive in which every byte is accounted for. Raises Fault."""
    files: dict[str, bytes] = {}
    at = 0
    while content[at : at + BLOCK].strip(b"\0"):
        try:
            member = tarfile.TarInfo.frombuf(content[at : at + BLOCK], "ascii", "strict")
        except (tarfile.HeaderError, ValueError) as error:
            raise Fault(f"the archive is damaged at byte {at}: {error}") from error
        name, size = member.name, member.size
        if name in files or size < 0 or content[at : at + BLOCK] != header(name, size):
            raise Fault(f"the archive is damaged at byte {at}")
        if NAME.fullmatch(name) is None:  # whoever unpacks it must not write elsewhere
            raise Fault(f"{name!r} is no file of a bundle")
        begin = at + BLOCK
        at = begin + -(-size // BLOCK) * BLOCK
        if at > len(content) or content[begin + size : at].strip(b"\0"):
            raise Fault(f"the archive is damaged after {name}")
        files[name] = content[begin : begin + size]
    if content[at:] != bytes(end_size(at)):
        raise Fault("the end of the archive is damaged")
    return files


def end_size(at: int) -> int:
    """Return the number of zeros that end an archive whose files end at an offset."""
    return 2 * BLOCK + -(at + 2 * BLOCK) % tarfile.RECORDSIZE


def check_sums(files: dict[str, bytes]) -> None:
    """Compare the SHA-256 of every file with the lists. Raises Fault."""
    stated = "".join(f"{digest(files[name])}  {name}\n" for name in sorted(files) if name != SUMS)
    if files.get(SUMS) != stated.encode():
        raise Fault(f"the hashes in {SUMS} differ from the files")
    manifest = json.loads(files[MANIFEST])
    listed = {each["path"]: (each["bytes"], each["sha256"]) for each in manifest["files"]}
    there = {
        name: (len(content), digest(content)) for name, content in files.items() if name not in {SUMS, MANIFEST, SIGNATURE}
    }
    if listed != there:
        raise Fault("the manifest differs from the files")


def check_journal(name: str, content: bytes) -> int:
    """Compute the chain of sums of a journal again, and return the number of its events. Raises Fault."""
    previous, seq = b"exuvia", 0
    for line in content.splitlines(True):
        seq += 1
        shape, closing = SHAPE.match(line), CLOSING.search(line)
        if shape is None or closing is None or int(shape.group(1)) != seq:
            raise Fault(f"{name}, line {seq}: it is not event {seq}")
        body = line[:-TRAILER]
        if hashlib.blake2b(body, digest_size=8, key=previous).hexdigest().encode() != closing.group(1):
            raise Fault(f"{name}, line {seq}: its sum does not match")
        previous = closing.group(1)
    return seq


def check_signature(files: dict[str, bytes], signer: str) -> str:
    """Return a sentence about the signature. Raises Fault."""
    if SIGNATURE not in files:
        if signer:
            raise Fault("it is not signed")
        return "It is not signed."
    key = files.get(SIGNER, b"").decode("utf-8", "replace").split()
    if signer and signer.split()[:2] != key[:2]:
        raise Fault("it was signed with another key")
    program = shutil.which("ssh-keygen")
    if program is None:
        return "The signature was not checked, because ssh-keygen is not installed."
    with tempfile.TemporaryDirectory() as folder:
        allowed, signature = os.path.join(folder, "allowed"), os.path.join(folder, "signature")
        with open(allowed, "wb") as file:
            file.write("exuvia {}\n".format(" ".join(key[:2])).encode())  # the rest may name other keys
        with open(signature, "wb") as file:
            file.write(files[SIGNATURE])
        command = [program, "-Y", "verify", "-f", allowed, "-I", "exuvia", "-n", NAMESPACE, "-s", signature]
        done = subprocess.run(command, input=files[MANIFEST], capture_output=True, check=False)  # noqa: S603 - ssh-keygen
    if done.returncode != 0:
        raise Fault("the signature does not match")
    return "The signature of {} matches.".format(" ".join(key[:2]))


def digest(content: bytes) -> str:
    """Return the SHA-256 in hexadecimal."""
    return hashlib.sha256(content).hexdigest()


def verify(content: bytes, signer: str = "") -> tuple[dict[str, bytes], str]:
    """Verify a bundle, and return its files and a sentence about it. Raises Fault."""
    files = read_archive(content)
    if SUMS not in files or MANIFEST not in files:
        raise Fault("it is no bundle")
    check_sums(files)
    journals = sorted(name for name in files if name.startswith("sessions/"))
    events = sum(check_journal(name, files[name]) for name in journals)
    attachments = [name for name in files if name.startswith("attachments/")]
    for name in attachments:
        if digest(files[name]) != name.partition("/")[2]:
            raise Fault(f"{name} differs from its name")
    said = "{} sessions with {} events and {} attachments are unchanged. {}"
    return files, said.format(len(journals), events, len(attachments), check_signature(files, signer))


def main(arguments: list[str]) -> int:
    """Verify the bundle that is named, and print the result."""
    signer = ""
    if "--signer" in arguments[1:-1]:
        at = arguments.index("--signer")
        with open(arguments[at + 1], encoding="utf-8") as file:
            signer = file.read()
        arguments = arguments[:at] + arguments[at + 2 :]
    if len(arguments) != 1:
        sys.stderr.write((__doc__ or "") + "\n")
        return 2
    try:
        with open(arguments[0], "rb") as bundle:
            sentence = verify(bundle.read(), signer)[1]
    except (Fault, OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        sys.stdout.write(f"DAMAGED {arguments[0]}: {error}\n")
        return 1
    sys.stdout.write(sentence + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
