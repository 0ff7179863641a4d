"""What this machine is, and how fast it is at the moment (calibrate.c)."""

import importlib.metadata
import os
import pathlib
import platform
import subprocess

from bench import zoo

SOURCE = pathlib.Path(__file__).with_suffix(".c")


def rates(threads, seconds=0.3):
    """GFLOP/s of multiply-adds and GB/s of reading memory, of all threads together."""
    program = zoo.FILES / "calibrate"
    if not zoo.newer(program, [SOURCE]):
        command = ["gcc", "-O3", "-march=native", "-pthread", SOURCE, "-o", program]
        subprocess.run(command, check=True)
    command = [program, str(threads), str(seconds)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    gflops, gbytes = done.stdout.split()
    return float(gflops), float(gbytes)


def machine():
    """The processor and what it offers."""
    fields = {}
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        key, _, value = line.partition(":")
        fields.setdefault(key.strip(), value.strip())
    wanted = ("fma", "avx2", "f16c", "avx_vnni", "avx512", "amx", "asimd", "sve", "i8mm", "bf16")
    flags = fields.get("flags", fields.get("Features", "")).split()
    return {
        "cpu": fields.get("model name", platform.machine()),
        "family": fields.get("cpu family"),
        "model": fields.get("model"),
        "cores": os.cpu_count(),
        "flags": [flag for flag in flags if flag.startswith(wanted)],
        "kernel": platform.release(),
    }


def versions(packages):
    """Of this interpreter, the C compiler and the packages that are installed."""
    done = subprocess.run(["cc", "--version"], capture_output=True, text=True, check=False)
    found = {"python": platform.python_version(), "cc": done.stdout.partition("\n")[0]}
    for package in packages:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = None
    return found
