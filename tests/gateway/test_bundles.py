"""Bundles: they verify themselves on a bare machine, each changed byte is found, and an import gives the same bytes."""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from gateway.backup import verify_bundle
from gateway.backup.bundle import archive_of
from gateway.support.home import Home
from tests.gateway.test_backups import exuvia
from tests.gateway.test_erasures import FORK, MAIN, OTHER, a_home
from tests.waiting import DEADLINE

pytestmark = pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="needs ssh-keygen, which signs bundles")

BARE = {"PATH": "/nonexistent", "HOME": "/nonexistent"}
"""An environment without programs."""


def verifies(bundle: Path, *options: str, environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[bytes]:
    """Run the program of a bundle with nothing but Python."""
    folder = bundle.parent / "bare"
    folder.mkdir(exist_ok=True)
    with tarfile.open(bundle) as archive:
        archive.extract("verify.py", folder, filter="data")
    command = [sys.executable, "-I", "-S", str(folder / "verify.py"), str(bundle), *options]
    return subprocess.run(command, capture_output=True, env=environment or dict(os.environ), timeout=DEADLINE, check=False)


def exported(tmp_path: Path, *arguments: str) -> tuple[Home, Path]:
    home, bundle = asyncio.run(a_home(tmp_path / "home")), tmp_path / "bundle.tar"
    done = exuvia("sessions", "export", *arguments, "--bundle", bundle, "--home", home.root)
    assert done.returncode == 0, done.stderr
    return home, bundle


def test_a_bundle_verifies_itself_with_and_without_ssh_keygen(tmp_path: Path) -> None:
    home, bundle = exported(tmp_path, "main")
    done = verifies(bundle)
    assert done.returncode == 0, done.stdout
    assert b"1 sessions with 32 events and 3 attachments are unchanged. The signature of ssh-ed25519" in done.stdout
    bare = verifies(bundle, environment=BARE)
    assert bare.returncode == 0
    assert b"ssh-keygen is not installed" in bare.stdout
    assert verifies(bundle, "--signer", str(home.export_key_public)).returncode == 0
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "other"], check=True)
    other = verifies(bundle, "--signer", str(tmp_path / "other.pub"))
    assert (other.returncode, b"signed with another key" in other.stdout) == (1, True)


def test_one_flipped_bit_anywhere_is_found(tmp_path: Path) -> None:
    """Every kind of place once, and many at random; verified without the signature, which could only find more."""
    _, bundle = exported(tmp_path, "main")
    content = bytearray(bundle.read_bytes())
    assert verify_bundle.read_archive(bytes(content))
    chance = random.Random(23)
    places = {0, 100, 156, 257, 500, len(content) - 1, len(content) - 1024}
    places |= {chance.randrange(len(content)) for _ in range(3000)}
    for place in sorted(places):
        bit = 1 << chance.randrange(8)
        content[place] ^= bit
        with pytest.raises((verify_bundle.Fault, ValueError, KeyError, TypeError)):
            _verified_without_signature(bytes(content))
        content[place] ^= bit
    _verified_without_signature(bytes(content))


def _verified_without_signature(content: bytes) -> None:
    files = verify_bundle.read_archive(content)
    if verify_bundle.SUMS not in files or verify_bundle.MANIFEST not in files:
        raise verify_bundle.Fault("it is no bundle")
    verify_bundle.check_sums(files)


def test_the_exit_code_of_a_changed_bundle_is_1(tmp_path: Path) -> None:
    _, bundle = exported(tmp_path, "main")
    program = tmp_path / "verify.py"
    shutil.copy(verify_bundle.__file__, program)
    whole = bundle.read_bytes()
    for place in (whole.index(b"the canary of message"), whole.index(b"BEGIN SSH SIGNATURE"), whole.index(b'"exported"'), 3):
        bundle.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        done = subprocess.run([sys.executable, "-I", program, bundle], capture_output=True, check=False, timeout=DEADLINE)
        assert (done.returncode, done.stdout[:7]) == (1, b"DAMAGED"), done


def test_a_changed_journal_with_new_hashes_and_sums_needs_the_key(tmp_path: Path) -> None:
    """Somebody who changes a bundle can compute all hashes again, but not the signature."""
    _, bundle = exported(tmp_path, "main")
    files = verify_bundle.read_archive(bundle.read_bytes())
    manifest = json.loads(files[verify_bundle.MANIFEST])
    manifest["exported"] = "2020-01-01T00:00:00.000Z"
    files[verify_bundle.MANIFEST] = json.dumps(manifest).encode()
    names = sorted(name for name in files if name != verify_bundle.SUMS)
    files[verify_bundle.SUMS] = "".join(f"{verify_bundle.digest(files[name])}  {name}\n" for name in names).encode()
    with pytest.raises(verify_bundle.Fault, match="signature does not match"):
        verify_bundle.check_signature(files, "")
    verify_bundle.check_sums(files)


def repacked(files: dict[str, bytes]) -> bytes:
    """Return a bundle with these files whose hashes are computed again."""
    known = {verify_bundle.SUMS, verify_bundle.MANIFEST, verify_bundle.SIGNATURE}
    listed = [
        {"path": name, "bytes": len(each), "sha256": verify_bundle.digest(each)}
        for name, each in files.items()
        if name not in known
    ]
    manifest = {**json.loads(files[verify_bundle.MANIFEST]), "files": listed}
    files = {**files, verify_bundle.MANIFEST: json.dumps(manifest).encode()}
    names = sorted(name for name in files if name != verify_bundle.SUMS)
    sums = "".join(f"{verify_bundle.digest(files[name])}  {name}\n" for name in names)
    return archive_of({**files, verify_bundle.SUMS: sums.encode()})


def unsigned(tmp_path: Path) -> dict[str, bytes]:
    """Return the files of a bundle without its signature."""
    _, bundle = exported(tmp_path, "main")
    files = verify_bundle.read_archive(bundle.read_bytes())
    del files[verify_bundle.SIGNATURE], files[verify_bundle.SIGNER]
    return files


@pytest.mark.parametrize("name", ["../../../planted", "sessions/../../planted", "/tmp/planted", "sessions/x/y.jsonl"])
def test_a_bundle_cannot_write_outside_of_the_folder_where_it_is_unpacked(tmp_path: Path, name: str) -> None:
    files = unsigned(tmp_path)
    verify_bundle.verify(repacked(files))
    with pytest.raises(verify_bundle.Fault, match="is no file of a bundle"):
        verify_bundle.verify(repacked({**files, name: b"planted"}))


def test_a_second_key_beside_the_trusted_one_does_not_sign(tmp_path: Path) -> None:
    for name in ("trusted", "other"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "x", "-f", tmp_path / name], check=True)
    trusted, other = ((tmp_path / f"{name}.pub").read_text() for name in ("trusted", "other"))
    files = {**unsigned(tmp_path), verify_bundle.SIGNER: f"{trusted}exuvia {other}".encode()}
    files = verify_bundle.read_archive(repacked(files))
    (tmp_path / "manifest").write_bytes(files[verify_bundle.MANIFEST])
    sign: list[str | Path] = ["ssh-keygen", "-q", "-Y", "sign", "-n", verify_bundle.NAMESPACE, "-f", tmp_path / "other"]
    subprocess.run([*sign, tmp_path / "manifest"], check=True)
    files[verify_bundle.SIGNATURE] = (tmp_path / "manifest.sig").read_bytes()
    with pytest.raises(verify_bundle.Fault, match="signature does not match"):
        verify_bundle.check_signature(files, trusted)


def test_all_sessions_of_a_person_are_imported_with_the_same_bytes(tmp_path: Path) -> None:
    home, bundle = exported(tmp_path, "--person", "owner")
    there = Home(tmp_path / "there")
    there.make()
    done = exuvia("sessions", "import", bundle, "--home", there.root)
    assert done.stdout == b"Imported: 3 sessions. Already here: 0.\n", done.stderr
    for session in (MAIN, FORK, OTHER):
        name = f"{session}.jsonl"
        assert (there.sessions / name).read_bytes() == (home.sessions / name).read_bytes()
    verified = exuvia("sessions", "verify", "--home", there.root)
    assert (verified.returncode, b"Attachments: 3 checked, 0 missing" in verified.stdout) == (0, True), verified.stdout
    again = exuvia("sessions", "import", bundle, "--home", there.root)
    assert (again.returncode, again.stdout) == (0, b"Imported: 0 sessions. Already here: 3.\n")
    assert list(there.root.glob(".importing-*")) == []


def test_a_session_with_other_bytes_is_not_overwritten(tmp_path: Path) -> None:
    home, bundle = exported(tmp_path, "main")
    journal = home.sessions / f"{MAIN}.jsonl"
    shorter = b"".join(journal.read_bytes().splitlines(keepends=True)[:5])
    journal.write_bytes(shorter)
    done = exuvia("sessions", "import", bundle, "--home", home.root)
    assert (done.returncode, b"other bytes" in done.stdout) == (1, True)
    assert journal.read_bytes() == shorter
