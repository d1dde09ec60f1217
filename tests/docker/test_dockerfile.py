"""The Dockerfile is clean, and the files it copies exist; `make test-image` builds it."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCKERFILE = (ROOT / "docker" / "Dockerfile").read_text()
COPIED = [
    source
    for line in re.findall(r"^COPY (?!--from)(.+)$", DOCKERFILE, re.M)
    for source in line.split()[:-1]
]


def test_hadolint_finds_nothing() -> None:
    hadolint = Path(sys.executable).with_name("hadolint")
    command = [hadolint, ROOT / "docker" / "Dockerfile"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0 and not result.stdout, result.stdout + result.stderr


def test_what_is_copied_exists_and_is_not_ignored() -> None:
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    let_through = [line[1:] for line in ignored if line.startswith("!")]
    assert ignored.index("*") < ignored.index("!pipeline"), "all is ignored but what is named"
    assert COPIED
    for flavour in ("cuda", "cpu"):
        for source in COPIED:
            path = ROOT / source.replace("${FLAVOUR}", flavour)
            assert path.exists(), source
            assert any(path.match(pattern) for pattern in let_through), f"{source} is ignored"


def test_source_comes_after_dependencies() -> None:
    """A change of the code must not install torch again."""
    last_install = DOCKERFILE.rindex("pip install --")
    for room in ("pipeline", "model", "ds_configs"):
        assert DOCKERFILE.index(f"COPY {room} ") > last_install


def test_nothing_is_installed_without_a_hash() -> None:
    commands = re.findall(r"pip (?:install|wheel) --(?:.*\\\n)*.*", DOCKERFILE)
    assert len(commands) == 3
    from_outside = [command for command in commands if "--no-index" not in command]
    assert len(from_outside) == 2
    assert all("--require-hashes" in command for command in from_outside)


def test_signals_reach_python() -> None:
    """An init as process 1 and no shell in between: a shell would swallow SIGTERM."""
    assert re.search(r'^ENTRYPOINT \["tini", "--"\]$', DOCKERFILE, re.M)
    assert re.search(r'^CMD \["python", ', DOCKERFILE, re.M)


def test_readme_names_every_build_argument() -> None:
    readme = (ROOT / "docker" / "README.md").read_text()
    for argument in set(re.findall(r"^ARG (\w+)", DOCKERFILE, re.M)):
        assert f"`{argument}`" in readme, argument
