"""What tiles of products take on this machine's NVIDIA GPU: the table in passes/schedule_blocks.c.

    python3 -m bench.tiles --compile     # with nvcc: bench/tiles.cu for each tile, into build/tiles
    python3 -m bench.tiles FILE          # with CuPy: measures them, prints the table, writes FILE

With --warps both are of bf16, by tensor cores: the table of warp_tiles.

Products are those of BERT-base, of ResNet-50, and squares, in pieces of their depth; constants come
from memory beyond the L2 cache, as in a model. Each is checked once, then timed as a CUDA graph. The
table: cycles for each time that shared memory is filled, by how many blocks a multiprocessor has.
"""

import argparse
import collections
import json
import pathlib
import statistics
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILT = ROOT / "build" / "tiles"
# rows and columns of a block, of a thread; depth
TILES = [
    (rows, columns, of_rows, of_columns, depth)
    for rows, columns, of_rows, of_columns in [
        (128, 128, 8, 8), (64, 128, 8, 8), (128, 64, 8, 8), (64, 64, 8, 8), (64, 64, 8, 4),
        (64, 64, 4, 4), (64, 32, 4, 4), (32, 64, 4, 4), (32, 32, 4, 4), (32, 32, 4, 2),
    ]
    for depth in (8, 16, 32)
    if min(rows, columns) * depth * of_rows * of_columns >= 4 * rows * columns
    and (rows + columns + 8) * depth <= 12 << 10
]
# of bf16, by warps; depth: in bytes, as in the table
WARP_TILES = [
    (rows, columns, of_rows, of_columns, 64)
    for rows, columns, of_rows, of_columns in [
        (128, 128, 8, 8), (64, 128, 8, 8), (128, 64, 8, 8), (64, 64, 4, 8), (64, 64, 8, 4),
        (32, 128, 4, 8), (32, 64, 4, 4), (64, 32, 4, 4), (32, 32, 2, 4), (16, 64, 2, 4),
        (16, 32, 2, 2), (64, 8, 2, 2), (16, 8, 2, 2),
    ]
]
# rows, columns, depth, and whether the rows (of a convolution's weights) are the constant
PRODUCTS = [
    (128, 768, 768, 0), (128, 2304, 768, 0), (128, 3072, 768, 0), (128, 768, 3072, 0),
    (64, 3136, 256, 1), (256, 3136, 64, 1), (128, 768, 512, 1), (512, 768, 128, 1),
    (256, 192, 1024, 1), (1024, 192, 256, 1), (512, 64, 2048, 1), (2048, 64, 512, 1),
    (64, 3136, 576, 1), (128, 768, 1152, 1), (256, 192, 2304, 1), (512, 64, 4608, 1),
    (1024, 1024, 1024, 0), (2048, 2048, 2048, 0),
]
PIECES = (1, 2, 3, 4, 6, 8, 12, 16)
LAUNCH_US, TOTAL_US, TOTAL_BYTES_US = 2.5, 1.7, 4e6  # beside the product: see `cycles`


def cubin(tile, by_columns, warps):
    kind = "warps" if warps else by_columns
    return BUILT / ("_".join(map(str, tile)) + f"_{kind}.cubin")


def steps_of(tile, warps):
    """The depth of what is in shared memory at once."""
    return tile[4] // 2 if warps else tile[4]


def compile_all(arch, warps):
    BUILT.mkdir(parents=True, exist_ok=True)
    names = ("ROWS", "COLUMNS", "THREAD_ROWS", "THREAD_COLUMNS")
    for tile in WARP_TILES if warps else TILES:
        for by_columns in (0,) if warps else (0, 1):
            defines = [f"-D{name}={value}" for name, value in zip(names, tile)]
            subprocess.run(
                ["nvcc", "-std=c++17", "-cubin", f"-arch={arch}", f"-I{ROOT}", *defines,
                 f"-DDEPTH={steps_of(tile, warps)}", f"-DA_BY_COLUMNS={by_columns}",
                 f"-DWARPS={int(warps)}", "-o", cubin(tile, by_columns, warps),
                 ROOT / "bench" / "tiles.cu"],
                check=True)


def graph_us(cupy, stream, launch, launches):
    """Microseconds of a launch, of so many in a graph."""
    begin, end = cupy.cuda.Event(), cupy.cuda.Event()
    best = float("inf")
    with stream:
        stream.begin_capture()
        for i in range(launches):
            launch(i)
        graph = stream.end_capture()
        graph.launch(stream)
        for _ in range(3):
            begin.record(stream)
            graph.launch(stream)
            end.record(stream)
            end.synchronize()
            best = min(best, cupy.cuda.get_elapsed_time(begin, end) * 1e3 / launches)
    return best


def operands(cupy, count, lines, depth, warps):
    """So many matrices of lines of the depth, turned unless warps read them, and the first of them."""
    floats = [cupy.random.standard_normal((lines, depth), dtype=cupy.float32) for _ in range(count)]
    if not warps:
        return [cupy.ascontiguousarray(each.T) for each in floats], floats[0]
    bits = [(each.view(cupy.uint32) >> 16).astype(cupy.uint16) for each in floats]
    return bits, (bits[0].astype(cupy.uint32) << 16).view(cupy.float32)


def measure(warps):
    """(product, tile, pieces, microseconds) of all that fit."""
    import cupy
    import numpy as np

    stream = cupy.cuda.Stream(non_blocking=True)
    results = []
    for rows, columns, depth, by_columns in PRODUCTS:
        constants = max(1, min(24, int(80e6 / (depth * (rows if by_columns else columns) * 4))))
        a, first_a = operands(cupy, constants if by_columns else 1, rows, depth, warps)
        b, first_b = operands(cupy, 1 if by_columns else constants, columns, depth, warps)
        if not by_columns and not warps:
            a = [first_a]
        c = cupy.empty((rows, columns), cupy.float32)
        parts = cupy.empty((max(PIECES), rows, columns), cupy.float32)
        wanted = first_a.astype(cupy.float64) @ first_b.astype(cupy.float64).T
        for tile in WARP_TILES if warps else TILES:
            if rows % tile[0] or columns % tile[1]:
                continue
            module = cupy.RawModule(path=str(cubin(tile, by_columns, warps)))
            product, total = module.get_function("product"), module.get_function("total")
            threads = (tile[1] // tile[3], tile[0] // tile[2])
            if warps:
                threads = (threads[0] * threads[1], 1)
            for pieces in PIECES:
                grid = (columns // tile[1], rows // tile[0], pieces)
                if depth % (pieces * steps_of(tile, warps)) or grid[0] * grid[1] * pieces > 1056:
                    continue

                def launch(i):
                    product(grid, threads,
                            (a[i % len(a)], b[i % len(b)], parts if pieces > 1 else c,
                             np.int32(rows), np.int32(columns), np.int32(depth)))
                    if pieces > 1:
                        total((rows * columns // 256,), (256,),
                              (parts, c, np.int32(rows * columns), np.int32(pieces)))

                c.fill(float("nan"))
                cupy.cuda.Device().synchronize()
                with stream:
                    launch(0)
                stream.synchronize()
                error = float(cupy.linalg.norm(c - wanted) / cupy.linalg.norm(wanted))
                if not error < 1e-5:
                    raise SystemExit(f"tiles: {tile} in {pieces} pieces is wrong by {error}")
                us = graph_us(cupy, stream, launch, 10 if rows * columns * depth < 1e9 else 2)
                results.append(((rows, columns, depth, by_columns), tile, pieces, us))
    return results


def table(results, warps, multiprocessors, clock_mhz):
    """Median cycles of a step, by tile and by blocks of a multiprocessor."""
    cycles = collections.defaultdict(list)
    for (rows, columns, depth, _), tile, pieces, us in results:
        steps = depth // pieces // steps_of(tile, warps)
        if steps < 6:
            continue
        blocks = -(-(rows // tile[0] * (columns // tile[1]) * pieces) // multiprocessors)
        beside = LAUNCH_US
        if pieces > 1:
            beside += TOTAL_US + pieces * rows * columns * 8 / TOTAL_BYTES_US
        cycles[tile, blocks].append((us - beside) / steps * clock_mhz)
    return {key: statistics.median(values) for key, values in sorted(cycles.items())}


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", nargs="?", help="the report")
    parser.add_argument("--compile", action="store_true", help="with nvcc, for --arch")
    parser.add_argument("--warps", action="store_true", help="of bf16, by tensor cores")
    parser.add_argument("--arch", default="sm_90")
    parser.add_argument("--clock", type=float, default=1980, help="MHz that multiprocessors reach")
    options = parser.parse_args()
    if options.compile:
        compile_all(options.arch, options.warps)
    if options.file:
        import cupy

        properties = cupy.cuda.runtime.getDeviceProperties(0)
        results = measure(options.warps)
        found = table(results, options.warps, properties["multiProcessorCount"], options.clock)
        for (tile, blocks), cycles in found.items():
            print(tile, blocks, round(cycles))
        report = {"gpu": properties["name"].decode(), "clock_mhz": options.clock,
                  "products": results}
        pathlib.Path(options.file).write_text(json.dumps(report) + "\n")


if __name__ == "__main__":
    main()
