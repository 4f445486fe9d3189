"""Real container engines for tests: a docker daemon and a podman of their own, and an image made from this machine."""

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import time
from pathlib import Path

from support import make_executable, script_at

IMAGE_NAME = "tui-train-test:1"
# Their names are enough for whoever asks what an image has; what is imported is mounted.
STUB_PACKAGES = ("torch", "accelerate", "transformers")
EXCLUDED_LIBRARY_PARTS = ("test", "site-packages", "idlelib", "tkinter", "ensurepip", "lib2to3", "turtledemo")


def why_unavailable(engine):
    """Reason why an engine cannot be started here; empty where it can."""
    needed = {"docker": ("docker", "dockerd", "runc"), "podman": ("podman", "runc", "conmon", "catatonit")}[engine]
    found = [name for name in needed if not shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin:/sbin")]
    if found:
        return f"{', '.join(found)} is not installed"
    return "" if os.geteuid() == 0 else "only root can start an engine of its own"


def shared_libraries(*programs):
    """The shared libraries that these programs load."""
    found = set()
    for program in programs:
        listed = subprocess.run(["ldd", program], capture_output=True, text=True, check=False).stdout
        found |= {word for word in listed.split() if word.startswith("/")}
    return found


def write_image(path):
    """Write the file system of an image: this Python, a shell, and what they load."""
    base = Path(sys.base_prefix)
    python = Path(sys.executable).resolve()
    library = Path(sysconfig.get_path("stdlib"))
    programs = [str(python), "/bin/sh", "/bin/sleep", *map(str, library.glob("lib-dynload/*.so"))]
    extra = ("libstdc++.so.6", "libgcc_s.so.1", "libgomp.so.1", "librt.so.1", "libpthread.so.0", "libdl.so.2")
    known = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True, check=True).stdout
    loaded = {line.rpartition("=> ")[2] for line in known.splitlines() if line.split()[:1] and line.split()[0] in extra}
    with tarfile.open(path, "w") as tar:
        tar.dereference = True
        tar.add(python, arcname=f"{base}/bin/{python.name}")
        tar.add(library, arcname=str(library), filter=lambda item: None if _is_excluded(item.name) else item)
        for program in ("/bin/sh", "/bin/sleep", *sorted(shared_libraries(*programs) | loaded)):
            tar.add(program, arcname=program)
        with tempfile.TemporaryDirectory() as folder:
            for name in STUB_PACKAGES:
                package = Path(folder, name)
                package.mkdir()
                (package / "__init__.py").write_text("raise ImportError('mount the real one')\n")
                (package / "version.py").write_text("__version__ = '2.13.0'\n")
                tar.add(package, arcname=f"{library}/site-packages/{name}")
        tar.dereference = False
        for name, target in {"/usr/bin/python": f"{base}/bin/{python.name}"}.items():
            link = tarfile.TarInfo(name)
            link.type, link.linkname = tarfile.SYMTYPE, target
            tar.addfile(link)
        for name in ("tmp", "proc", "sys", "dev", "etc"):
            folder = tarfile.TarInfo(name)
            folder.type, folder.mode = tarfile.DIRTYPE, 0o1777 if name == "tmp" else 0o755
            tar.addfile(folder)


def _is_excluded(name):
    parts = Path(name).parts
    return any(part in EXCLUDED_LIBRARY_PARTS or part.startswith("config-3") for part in parts)


class Docker:
    """A docker daemon of our own, which touches nothing of the machine's network."""

    def __init__(self, folder):
        self.folder = folder
        # Its presence is what makes `--gpus` legal; that of NVIDIA is not here.
        hook = make_executable(folder / "bin" / "nvidia-container-runtime-hook", "#!/bin/sh\ncat > /dev/null\n")
        self.environment = {"DOCKER_HOST": f"unix://{folder}/s"}
        words = ["dockerd", f"--data-root={folder}/data", f"--exec-root={folder}/exec", f"--pidfile={folder}/pid"]
        words += ["-H", f"unix://{folder}/s", "--bridge=none", "--iptables=false", "--ip6tables=false"]
        words += [f"--add-runtime=limited={make_runtime(folder)}", "--default-runtime=limited"]
        with (folder / "log").open("wb") as log:
            path = f"{hook.parent}:{os.environ['PATH']}:/usr/sbin:/sbin"
            self.daemon = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                env={**os.environ, "PATH": path},
            )  # fmt: skip
        for _ in range(200):
            if self.run("ps", check=False).returncode == 0:
                break
            time.sleep(0.1)
        else:
            self.close()
            raise RuntimeError((folder / "log").read_text()[-2000:])
        (folder / "s").chmod(0o666)
        write_image(folder / "image.tar")
        self.run("import", "-c", "ENV PATH=/usr/bin:/bin", str(folder / "image.tar"), IMAGE_NAME)

    def run(self, *words, check=True):
        environment = {**os.environ, **self.environment}
        return subprocess.run(["docker", *words], env=environment, capture_output=True, text=True, check=check)

    def close(self):
        self.daemon.terminate()
        self.daemon.wait(60)


class Podman:
    """A podman whose images and containers lie in a folder of our own."""

    def __init__(self, folder):
        self.folder = folder
        (folder / "containers.conf").write_text(
            f'[engine]\ncgroup_manager="cgroupfs"\nevents_logger="file"\nruntime="limited"\n'
            f'[engine.runtimes]\nlimited=["{make_runtime(folder)}"]\n[containers]\nlog_driver="k8s-file"\n'
        )
        (folder / "storage.conf").write_text(
            f'[storage]\ndriver="overlay"\ngraphroot="{folder}/graph"\nrunroot="{folder}/run"\n'
        )
        self.environment = {
            "CONTAINERS_CONF": str(folder / "containers.conf"),
            "CONTAINERS_STORAGE_CONF": str(folder / "storage.conf"),
        }
        write_image(folder / "image.tar")
        self.run("import", "-c", "ENV PATH=/usr/bin:/bin", str(folder / "image.tar"), IMAGE_NAME)

    def run(self, *words, check=True):
        environment = {**os.environ, **self.environment}
        return subprocess.run(["podman", *words], env=environment, capture_output=True, text=True, check=check)

    def close(self):
        self.run("rm", "-fa", check=False)
        self.run("rmi", "-fa", check=False)


def make_runtime(folder):
    """Make the runtime that asks for no more than this machine may give."""
    return script_at(folder / "runtime", "oci_runtime.py")
