"""cuBLAS through PyTorch, on the device, as a peer of peers.py: tasks on stdin as bench-peer.c says.

Timed with CUDA's events over as many products as take a while, after as many untimed ones, as
bench-peer does; plain FP32, no TF32.
"""
import os
import sys

answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)

try:
    import torch
except ImportError:
    sys.exit("no PyTorch")
if not torch.cuda.is_available():
    sys.exit("PyTorch sees no GPU")

torch.backends.cuda.matmul.allow_tf32 = False
torch.set_float32_matmul_precision("highest")
TYPES = {"s": torch.float32, "d": torch.float64, "c": torch.complex64, "z": torch.complex128}
LEAST = 0.12


def products(a, b, c, count):
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(count):
        torch.matmul(a, b, out=c)
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) * 1e-3


sizes, matrices, count = None, None, 1
for line in sys.stdin:
    words = line.split()
    wanted = words[1:5] if words[0] == "run" else None
    if wanted != sizes:
        sizes, matrices, count = wanted, None, 1
        torch.cuda.empty_cache()
    if sizes is None:
        print(0, file=answers, flush=True)
        continue
    if matrices is None:
        m, n, k = (int(word) for word in sizes[1:])
        # Column-major, as BLAS has them: the transposes of what PyTorch calls contiguous.
        shapes = ((k, m), (n, k), (n, m))
        matrices = [(torch.rand(s, dtype=TYPES[sizes[0]], device="cuda") * 2 - 1).t() for s in shapes]
        a, b, c = matrices
        c = c.t()
        matrices = [b.t(), a.t(), c]
        products(*matrices, 1)
    while True:
        seconds = products(*matrices, count)
        if seconds > LEAST or count >= 256:
            break
        count *= 2
    seconds = products(*matrices, count)
    print(f"{seconds / count:.9g}", file=answers, flush=True)
