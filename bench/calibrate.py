"""What this machine is, and how fast it is at the moment (calibrate.c; of a GPU, what PyTorch
reaches: cuBLAS and copies)."""

import functools
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


def gpu_seconds(work):
    """The shortest of a few runs."""
    import torch  # only where there is a GPU

    best = float("inf")
    for _ in range(6):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        work()
        end.record()
        end.synchronize()
        best = min(best, begin.elapsed_time(end) / 1e3)
    torch.cuda.empty_cache()
    return best


def gpu_tflops(dtype, size=4096):
    """TFLOP/s of a large product by cuBLAS; of float32 without TF32."""
    import torch

    torch.backends.cuda.matmul.allow_tf32 = False
    a, b = (torch.randn(size, size, device="cuda", dtype=getattr(torch, dtype)) for _ in range(2))
    return 2e-12 * size**3 / gpu_seconds(lambda: a @ b)


def gpu_rates():
    """TFLOP/s of large products, and GB/s of a copy in the GPU's memory, read and written."""
    import torch

    source = torch.empty(1 << 30, device="cuda", dtype=torch.uint8)
    target = torch.empty_like(source)
    return {
        "fp32_tflops": round(gpu_tflops("float32"), 1),
        "bf16_tflops": round(gpu_tflops("bfloat16", 8192), 1),
        "copy_gbytes": round(2e-9 * source.numel() / gpu_seconds(lambda: target.copy_(source))),
    }


@functools.cache
def gpu():
    """The name of the first GPU, its compute capability and driver, as nvidia-smi says them."""
    query = ["nvidia-smi", "--query-gpu=name,compute_cap,driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(query, check=True, capture_output=True, text=True)
    except FileNotFoundError:
        raise SystemExit("bench: no NVIDIA driver here: nvidia-smi is not found") from None
    names = ("gpu", "compute_capability", "driver")
    return dict(zip(names, done.stdout.splitlines()[0].split(", ")))


def gpu_arch():
    """What `mlcc -march` calls the first GPU."""
    return "sm_" + gpu()["compute_capability"].replace(".", "")


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


def commit():
    """The commit that is measured, `-dirty` when files differ from it."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    here = pathlib.Path(__file__).parent
    done = subprocess.run(command, cwd=here, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


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
