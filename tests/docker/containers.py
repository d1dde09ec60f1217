"""Container images without Docker, a daemon or a registry: buildah builds, podman runs.

Needs root on Debian or Ubuntu. All state is in one directory, which `close` removes. The base image
is made from Debian's packages. Settings of this machine that pip needs (certificates, package
sources) are mounted during a build and are not part of an image.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

COMMANDS = ("buildah", "podman", "crun", "mmdebstrap")
"""Each from the Debian package of its name."""
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
EXTRA_CERTIFICATES = Path("/usr/local/share/ca-certificates")
PIP_SETTINGS = ("INDEX_URL", "EXTRA_INDEX_URL", "FIND_LINKS", "TRUSTED_HOST")
# Small and explicit: podman's default raises limits, which needs CAP_SYS_RESOURCE.
CONTAINERS_CONF = """
[containers]
default_ulimits = ["nofile=16384:16384", "nproc=16384:16384"]
cgroups = "disabled"
netns = "host"
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
"""
# crun 1.8 refuses a machine with both kinds of cgroups, so it is shown only one.
PODMAN = (
    "unshare", "--mount", "--propagation", "slave", "sh", "-c",
    'umount /sys/fs/cgroup/unified 2>/dev/null; exec podman "$@"', "podman",
)  # fmt: skip


def run(command: list[object], **options: object) -> subprocess.CompletedProcess[str]:
    """Run a command that must succeed; its output is in the error if it does not."""
    arguments = [str(argument) for argument in command]
    settings = {"capture_output": True, "text": True, "timeout": 600} | options
    result = subprocess.run(arguments, check=False, **settings)  # type: ignore[call-overload]
    said = (result.stdout or "")[-4000:] + (result.stderr or "")[-4000:]
    assert result.returncode == 0, f"{' '.join(arguments)}\n{said}"
    return result  # type: ignore[no-any-return]


class Containers:
    """Images and containers of one directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.mounts: list[str] = []
        self.wheels = ""
        """Where this machine's pip looks for wheels; empty if not configured."""
        self.environment = os.environ | {
            "CONTAINERS_CONF": str(directory / "containers.conf"),
            "CONTAINERS_STORAGE_CONF": str(directory / "storage.conf"),
            "BUILDAH_ISOLATION": "chroot",
            # the OCI format would silently drop SHELL and HEALTHCHECK
            "BUILDAH_FORMAT": "docker",
        }

    @classmethod
    def open(cls, directory: Path) -> Containers:
        """Install what is missing and use `directory` for all state."""
        missing = [name for name in COMMANDS if not shutil.which(name)]
        if missing:
            apt = ["apt-get", "--yes", "--quiet", "-o", "DPkg::Lock::Timeout=300"]
            quiet = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
            run([*apt, "update"], env=quiet)
            run([*apt, "install", "--no-install-recommends", *missing], env=quiet)
        (directory / "containers.conf").write_text(CONTAINERS_CONF)
        (directory / "storage.conf").write_text(
            f'[storage]\ndriver = "overlay"\ngraphroot = "{directory}/storage"\n'
            f'runroot = "{directory}/run"\n'
        )
        containers = cls(directory)
        containers._pass_on_pip_settings()
        return containers

    def _pass_on_pip_settings(self) -> None:
        """Mounts for builds, if this machine has its own certificates or package sources."""
        settings = {}
        if any(EXTRA_CERTIFICATES.glob("*.crt")):
            self.mounts.append(f"{CERTIFICATES}:/run/host-certificates.crt:ro")
            settings["cert"] = "/run/host-certificates.crt"
        for name in PIP_SETTINGS:
            option = name.lower().replace("_", "-")
            found = subprocess.run(
                ["python3", "-m", "pip", "config", "get", f"global.{option}"],
                capture_output=True, text=True, check=False,
            ).stdout.strip()  # fmt: skip
            value = os.environ.get(f"PIP_{name}") or found
            if value:
                settings[option] = value
                for part in value.split():
                    place = Path(part.removeprefix("file://"))
                    # an index in a directory has its files next to it
                    place = place.parent if part.startswith("file://") else place
                    if place.is_absolute() and place.is_dir():
                        self.mounts.append(f"{place}:{place}:ro")
        self.wheels = settings.get("find-links", "").partition(" ")[0]
        if settings:
            lines = "".join(f"{option} = {value}\n" for option, value in settings.items())
            (self.directory / "pip.conf").write_text(f"[global]\n{lines}")
            self.mounts.append(f"{self.directory}/pip.conf:/etc/pip.conf:ro")

    def base(self, name: str, suite: str) -> None:
        """A minimal Debian, like the official slim images, from this machine's mirror."""
        root = self.directory / "base.tar"
        run(["mmdebstrap", "--quiet", "--variant=minbase", suite, root])
        self.podman("import", "--quiet", "--change", 'CMD ["/bin/bash"]', root, f"localhost/{name}")
        root.unlink()

    def build(self, context: Path, name: str, *options: object) -> None:
        """Build docker/Dockerfile; unchanged layers are reused."""
        mounts = [f"--volume={mount}" for mount in self.mounts]
        run(
            ["buildah", "bud", "--layers", "--network=host", *mounts, "--file=docker/Dockerfile",
             f"--tag=localhost/{name}", *options, context],
            cwd=context, env=self.environment, timeout=1500,
        )  # fmt: skip

    def podman(self, *arguments: object) -> str:
        """Run podman and return its output."""
        return run([*PODMAN, *arguments], env=self.environment).stdout.strip()

    def start(self, *arguments: object) -> subprocess.Popen[str]:
        """`podman run` with these arguments, in the background."""
        command = [str(argument) for argument in (*PODMAN, "run", "--no-healthcheck", *arguments)]
        return subprocess.Popen(
            command, env=self.environment, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip

    def close(self) -> None:
        """Remove the containers, the images and the directory."""
        subprocess.run([*PODMAN, "rm", "--all", "--force"], env=self.environment, check=False)
        mounted = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
        for place in sorted(mounted, reverse=True):
            if Path(place).is_relative_to(self.directory):
                subprocess.run(["umount", place], check=False)
        shutil.rmtree(self.directory)


def new_directory() -> Path:
    """Where an image store can be: not on an overlay itself, so the user can choose the place."""
    parent = Path(os.environ.get("TENFOLD_IMAGE_STORE", tempfile.gettempdir()))
    return Path(tempfile.mkdtemp(prefix="tenfold-image-", dir=parent))
