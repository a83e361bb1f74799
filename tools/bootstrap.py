"""Prepares a checkout: the virtual environment and a Java runtime, using nothing but the standard library.

    python3 tools/bootstrap.py venv           create or refresh .venv from requirements.lock
    python3 tools/bootstrap.py java           make sure a Java that Spark accepts is there
    python3 tools/bootstrap.py java --home    the same, and print its home directory

Whatever the user has to put right comes out as one sentence and exit status 1.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
MINIMUM_JAVA = 17
JVM_FOLDER = Path("/usr/lib/jvm")
JAVA_PACKAGES = ("openjdk-17-jre-headless", "default-jre-headless")


class NeedsUserError(Exception):
    """Something only the user can put right; the text is the one sentence to show."""


class Java(NamedTuple):
    """A Java runtime that answered when asked for its version."""

    home: str
    version: str

    @property
    def good_enough(self) -> bool:
        return java_major(self.version) >= MINIMUM_JAVA


def main(argv: Sequence[str] | None = None) -> int:
    options = parse_arguments(argv)
    try:
        if options.command == "venv":
            ensure_venv(ROOT)
        else:
            java = ensure_java()
            print(java.home if options.home else f"java {java.version} ({java.home})")
    except NeedsUserError as problem:
        print(problem, file=sys.stderr)
        return 1
    return 0


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Prepares a checkout: virtual environment and Java.")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("venv", help="create or refresh .venv from requirements.lock")
    java = commands.add_parser("java", help="make sure a Java that Spark accepts is there")
    java.add_argument("--home", action="store_true", help="print only its home directory")
    return parser.parse_args(argv)


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


# --- the virtual environment -------------------------------------------------------------------------------


def ensure_venv(root: Path) -> None:
    check_python(sys.version_info[:2], minimum_python((root / "pyproject.toml").read_text("utf-8")))
    venv = root / ".venv"
    if not venv_usable(venv, sys.version_info[:2]):
        ensure_venv_module()
        say(f"creating {venv.name} with Python {sys.version.split()[0]}")
        run([sys.executable, "-m", "venv", "--clear", str(venv)], "Python could not create .venv")
    if not up_to_date(venv, root):
        install(venv, root)


def minimum_python(pyproject: str) -> tuple[int, int]:
    found = re.search(r'^requires-python = ">=(\d+)\.(\d+)"', pyproject, re.MULTILINE)
    if found is None:
        raise NeedsUserError('pyproject.toml has no line like requires-python = ">=3.11".')
    return int(found[1]), int(found[2])


def check_python(running: tuple[int, ...], minimum: tuple[int, int]) -> None:
    if running < minimum:
        raise NeedsUserError(
            f"evenflow needs Python {dotted(minimum)} or newer and this is {dotted(running)}: "
            f"install one and name it, for example `make setup PYTHON=python{dotted(minimum)}`."
        )


def dotted(version: tuple[int, ...]) -> str:
    return ".".join(str(part) for part in version)


def venv_usable(venv: Path, running: tuple[int, ...]) -> bool:
    """Whether `venv` exists, works, and was made by the Python that runs now (major and minor)."""
    config = venv / "pyvenv.cfg"
    if not (config.is_file() and (venv / "bin" / "python").exists()):
        return False
    found = re.search(r"^version\s*=\s*(\d+)\.(\d+)", config.read_text("utf-8"), re.MULTILINE)
    return found is not None and (int(found[1]), int(found[2])) == running


def fingerprint(root: Path) -> str:
    """A sha256 over the files that decide what is installed."""
    digest = hashlib.sha256()
    for name in ("requirements.lock", "pyproject.toml"):
        content = (root / name).read_bytes()
        digest.update(f"{name} {len(content)}\n".encode() + content)
    return digest.hexdigest()


def stamp(venv: Path) -> Path:
    return venv / "installed.sha256"


def up_to_date(venv: Path, root: Path) -> bool:
    return stamp(venv).is_file() and stamp(venv).read_text("utf-8").strip() == fingerprint(root)


def install(venv: Path, root: Path) -> None:
    """Installs the locked packages, then evenflow; the stamp comes last, so a failure is retried."""
    stamp(venv).unlink(missing_ok=True)
    pip = [str(venv / "bin" / "python"), "-m", "pip", "install", "-qq", "--disable-pip-version-check"]
    say("installing the packages of requirements.lock (some minutes the first time)")
    run([*pip, "--requirement", str(root / "requirements.lock")], "pip could not install requirements.lock")
    say("installing evenflow, editable")
    run([*pip, "--no-deps", "--editable", str(root)], "pip could not install evenflow itself")
    stamp(venv).write_text(fingerprint(root) + "\n", "utf-8")


def ensure_venv_module() -> None:
    if has_ensurepip():
        return
    packages = (f"python{dotted(sys.version_info[:2])}-venv", "python3-venv")
    apt_install(packages)
    if not has_ensurepip():
        raise NeedsUserError(f"This Python cannot create virtual environments: install {' or '.join(packages)}.")


def has_ensurepip() -> bool:
    importlib.invalidate_caches()
    return importlib.util.find_spec("ensurepip") is not None


# --- Java --------------------------------------------------------------------------------------------------


def ensure_java() -> Java:
    java = find_java()
    if java is None:
        apt_install(JAVA_PACKAGES)
        java = find_java()
    if java is None:
        raise NeedsUserError(
            f"Spark needs Java {MINIMUM_JAVA} or newer and none was found: "
            f"install {JAVA_PACKAGES[0]} (or any JDK {MINIMUM_JAVA}+) or point JAVA_HOME to one."
        )
    return java


def find_java() -> Java | None:
    answers = (ask_java(program) for program in java_programs())
    return next((java for java in answers if java is not None and java.good_enough), None)


def java_programs() -> Iterator[Path]:
    """Where a Java may be, the user's own choice first."""
    home, on_path = os.environ.get("JAVA_HOME"), shutil.which("java")
    if home:
        yield Path(home) / "bin" / "java"
    if on_path:
        yield Path(on_path)
    yield from sorted(JVM_FOLDER.glob("*/bin/java"))


def ask_java(program: Path) -> Java | None:
    command = [str(program), "-XshowSettings:properties", "-version"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return parse_java(answer.stderr)


def parse_java(settings: str) -> Java | None:
    """Reads home and version from what `java -XshowSettings:properties -version` prints."""
    values = dict(re.findall(r"^\s*(java\.home|java\.version) = (.+?)\s*$", settings, re.MULTILINE))
    if len(values) < len(Java._fields):
        return None
    return Java(values["java.home"], values["java.version"])


def java_major(version: str) -> int:
    """The major version: 8 for 1.8.0_392, 17 for 17.0.15 and 17-ea; 0 if it cannot be read."""
    found = re.match(r"(?:1\.)?(\d+)", version)
    return int(found[1]) if found else 0


# --- system packages ---------------------------------------------------------------------------------------


def apt_install(packages: Sequence[str]) -> None:
    """Installs the first package that can be had; does nothing unless root on Debian or Ubuntu."""
    if not can_apt():
        return
    say(f"installing {packages[0]}")
    apt("update")
    for package in packages:
        if apt("install", "-y", "--no-install-recommends", package):
            return


def can_apt() -> bool:
    return os.geteuid() == 0 and Path("/etc/debian_version").exists() and shutil.which("apt-get") is not None


def apt(*arguments: str) -> bool:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    result = subprocess.run(["apt-get", "-qq", *arguments], env=environment, check=False, capture_output=True)
    return result.returncode == 0


def run(command: Sequence[str], complaint: str) -> None:
    """Runs a command whose own messages go to the terminal; a failure becomes one sentence."""
    status = subprocess.run(command, check=False).returncode
    if status != 0:
        raise NeedsUserError(f"{complaint} (exit status {status}); its own message stands above.")


if __name__ == "__main__":
    sys.exit(main())
