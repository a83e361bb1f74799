from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "tools" / "bootstrap.py"

SETTINGS_OF_JAVA_17 = """\
Property settings:
    java.class.version = 61.0
    java.home = /opt/jdk 17
    java.vendor.url.bug = https://example.org/
    java.version = 17.0.15
    java.version.date = 2025-04-15

openjdk version "17.0.15" 2025-04-15
"""


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("bootstrap", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def bootstrap() -> ModuleType:
    return load()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    (tmp_path / "requirements.lock").write_text("numpy==2.4.0\n")
    (tmp_path / "pyproject.toml").write_text('[project]\nrequires-python = ">=3.11"  # why\n')
    return tmp_path


def make_venv(root: Path, version: str) -> Path:
    venv = root / ".venv"
    (venv / "bin").mkdir(parents=True)
    (venv / "bin" / "python").touch()
    (venv / "pyvenv.cfg").write_text(f"home = /usr/bin\nversion = {version}\n")
    return venv


class Commands:
    """Stands in for subprocess.run: records each command and fails those the test names."""

    def __init__(self, fails: Callable[[list[str]], bool] = lambda _: False) -> None:
        self.ran: list[list[str]] = []
        self.fails = fails

    def __call__(self, command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        self.ran.append(command)
        return subprocess.CompletedProcess(command, int(self.fails(command)), stdout="", stderr="")


# --- Java versions ---


@pytest.mark.parametrize(
    ("version", "major"),
    [
        ("1.8.0_392", 8),
        ("11.0.21", 11),
        ("17.0.15", 17),
        ("17-ea", 17),
        ("17", 17),
        ("21", 21),
        ("25.0.1+8-LTS", 25),
        ("", 0),
        ("unknown", 0),
    ],
)
def test_major_version_of_java(bootstrap: ModuleType, version: str, major: int) -> None:
    assert bootstrap.java_major(version) == major


@pytest.mark.parametrize(("version", "good"), [("1.8.0_392", False), ("11.0.21", False), ("17-ea", True), ("21", True)])
def test_java_17_is_the_oldest_that_will_do(bootstrap: ModuleType, version: str, good: bool) -> None:
    assert bootstrap.Java("/jdk", version).good_enough is good


def test_home_and_version_are_read_from_the_settings(bootstrap: ModuleType) -> None:
    assert bootstrap.parse_java(SETTINGS_OF_JAVA_17) == ("/opt/jdk 17", "17.0.15")


@pytest.mark.parametrize("answer", ["", "Unable to locate a Java Runtime.", "    java.home = /jdk\n"])
def test_an_answer_without_home_and_version_is_no_java(bootstrap: ModuleType, answer: str) -> None:
    assert bootstrap.parse_java(answer) is None


# --- finding Java ---


def test_java_home_is_asked_first_then_the_path_then_the_jvm_folder(
    bootstrap: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("java-21", "java-17"):
        (tmp_path / name / "bin").mkdir(parents=True)
        (tmp_path / name / "bin" / "java").touch()
    monkeypatch.setenv("JAVA_HOME", "/chosen")
    monkeypatch.setattr(bootstrap.shutil, "which", lambda _: "/on/path/java")
    monkeypatch.setattr(bootstrap, "JVM_FOLDER", tmp_path)
    assert [str(program) for program in bootstrap.java_programs()] == [
        "/chosen/bin/java",
        "/on/path/java",
        str(tmp_path / "java-17/bin/java"),
        str(tmp_path / "java-21/bin/java"),
    ]


def test_a_java_that_is_too_old_is_passed_over(bootstrap: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    found = {
        "/broken": None,
        "/old": bootstrap.Java("/old", "1.8.0_392"),
        "/new": bootstrap.Java("/new", "21"),
    }
    monkeypatch.setattr(bootstrap, "java_programs", lambda: iter(found))
    monkeypatch.setattr(bootstrap, "ask_java", found.__getitem__)
    assert bootstrap.find_java() == ("/new", "21")


def test_a_program_that_is_not_there_is_no_java(bootstrap: ModuleType, tmp_path: Path) -> None:
    assert bootstrap.ask_java(tmp_path / "java") is None


# --- the stamp ---


def test_nothing_is_up_to_date_before_the_first_install(bootstrap: ModuleType, checkout: Path) -> None:
    assert not bootstrap.up_to_date(make_venv(checkout, "3.11.7"), checkout)


def test_install_runs_pip_twice_and_leaves_a_stamp(
    bootstrap: ModuleType, monkeypatch: pytest.MonkeyPatch, checkout: Path
) -> None:
    venv, commands = make_venv(checkout, "3.11.7"), Commands()
    monkeypatch.setattr(bootstrap.subprocess, "run", commands)
    bootstrap.install(venv, checkout)
    assert [command[-2:] for command in commands.ran] == [
        ["--requirement", str(checkout / "requirements.lock")],
        ["--editable", str(checkout)],
    ]
    assert bootstrap.up_to_date(venv, checkout)


@pytest.mark.parametrize("name", ["requirements.lock", "pyproject.toml"])
def test_a_changed_file_makes_the_stamp_stale(
    bootstrap: ModuleType, monkeypatch: pytest.MonkeyPatch, checkout: Path, name: str
) -> None:
    venv = make_venv(checkout, "3.11.7")
    monkeypatch.setattr(bootstrap.subprocess, "run", Commands())
    bootstrap.install(venv, checkout)
    with (checkout / name).open("a") as file:
        file.write("# changed\n")
    assert not bootstrap.up_to_date(venv, checkout)


def test_a_failed_install_leaves_no_stamp(
    bootstrap: ModuleType, monkeypatch: pytest.MonkeyPatch, checkout: Path
) -> None:
    venv = make_venv(checkout, "3.11.7")
    monkeypatch.setattr(bootstrap.subprocess, "run", Commands())
    bootstrap.install(venv, checkout)
    monkeypatch.setattr(bootstrap.subprocess, "run", Commands(fails=lambda command: "--editable" in command))
    with pytest.raises(bootstrap.NeedsUserError, match=r"pip could not install evenflow itself \(exit status 1\)"):
        bootstrap.install(venv, checkout)
    assert not bootstrap.up_to_date(venv, checkout)


def test_moving_a_line_between_the_files_changes_the_fingerprint(bootstrap: ModuleType, checkout: Path) -> None:
    before = bootstrap.fingerprint(checkout)
    lock, project = checkout / "requirements.lock", checkout / "pyproject.toml"
    project.write_text(lock.read_text() + project.read_text())
    lock.write_text("")
    assert bootstrap.fingerprint(checkout) != before


@pytest.mark.parametrize(
    ("version", "usable"), [("3.11.7", True), ("3.11.0rc1", True), ("3.12.1", False), ("3.1.1", False)]
)
def test_a_venv_of_another_python_is_made_anew(
    bootstrap: ModuleType,
    checkout: Path,
    version: str,
    usable: bool,
) -> None:
    assert bootstrap.venv_usable(make_venv(checkout, version), (3, 11)) is usable


def test_a_venv_whose_python_is_gone_is_made_anew(bootstrap: ModuleType, checkout: Path) -> None:
    venv = make_venv(checkout, "3.11.7")
    (venv / "bin" / "python").unlink()
    assert not bootstrap.venv_usable(venv, (3, 11))


def test_a_prepared_checkout_runs_no_command(
    bootstrap: ModuleType, monkeypatch: pytest.MonkeyPatch, checkout: Path
) -> None:
    venv = make_venv(checkout, sys.version.split()[0])
    bootstrap.stamp(venv).write_text(bootstrap.fingerprint(checkout))
    commands = Commands()
    monkeypatch.setattr(bootstrap.subprocess, "run", commands)
    bootstrap.ensure_venv(checkout)
    assert commands.ran == []


# --- system packages ---


def test_the_second_package_is_tried_when_the_first_does_not_exist(
    bootstrap: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands = Commands(fails=lambda command: command[-1] == "first")
    monkeypatch.setattr(bootstrap, "can_apt", lambda: True)
    monkeypatch.setattr(bootstrap.subprocess, "run", commands)
    bootstrap.apt_install(["first", "second", "third"])
    assert [command[-1] for command in commands.ran] == ["update", "first", "second"]


def test_without_apt_nothing_is_tried(bootstrap: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    commands = Commands()
    monkeypatch.setattr(bootstrap, "can_apt", lambda: False)
    monkeypatch.setattr(bootstrap.subprocess, "run", commands)
    bootstrap.apt_install(["first"])
    assert commands.ran == []


# --- what the user reads when nothing can be done ---


@pytest.fixture
def helpless(bootstrap: ModuleType, monkeypatch: pytest.MonkeyPatch, checkout: Path) -> ModuleType:
    """A machine with no Java, no ensurepip and no way to install either."""
    monkeypatch.setattr(bootstrap, "ROOT", checkout)
    monkeypatch.setattr(bootstrap, "find_java", lambda: None)
    monkeypatch.setattr(bootstrap, "has_ensurepip", lambda: False)
    monkeypatch.setattr(bootstrap, "can_apt", lambda: False)
    return bootstrap


def test_no_java_is_one_sentence(helpless: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    assert helpless.main(["java"]) == 1
    assert capsys.readouterr().err == (
        "Spark needs Java 17 or newer and none was found: "
        "install openjdk-17-jre-headless (or any JDK 17+) or point JAVA_HOME to one.\n"
    )


def test_no_ensurepip_is_one_sentence(helpless: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    package = f"python{sys.version_info[0]}.{sys.version_info[1]}-venv"
    assert helpless.main(["venv"]) == 1
    assert capsys.readouterr().err == (
        f"This Python cannot create virtual environments: install {package} or python3-venv.\n"
    )


def test_an_old_python_is_one_sentence(
    helpless: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(helpless.sys, "version_info", (3, 9, 2))
    assert helpless.main(["venv"]) == 1
    assert capsys.readouterr().err == (
        "evenflow needs Python 3.11 or newer and this is 3.9: "
        "install one and name it, for example `make setup PYTHON=python3.11`.\n"
    )


def test_a_found_java_is_one_line(
    bootstrap: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bootstrap, "find_java", lambda: bootstrap.Java("/jdk", "17.0.15"))
    assert bootstrap.main(["java"]) == 0
    assert bootstrap.main(["java", "--home"]) == 0
    assert capsys.readouterr() == ("java 17.0.15 (/jdk)\n/jdk\n", "")


def test_the_floor_is_read_from_the_real_pyproject(bootstrap: ModuleType) -> None:
    text = (bootstrap.ROOT / "pyproject.toml").read_text("utf-8")
    assert bootstrap.minimum_python(text) >= (3, 11)
