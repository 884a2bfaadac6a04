"""Multiplies two matrices on the first card, and compares the product with the CPU's."""

from __future__ import annotations

import sys

SIZE = 1024


def main() -> int:
    import torch
    import ttnn

    device = ttnn.open_device(device_id=0)
    try:
        first, second = torch.rand(SIZE, SIZE), torch.rand(SIZE, SIZE)
        on_card = [
            ttnn.from_torch(each, dtype=ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=device)
            for each in (first, second)
        ]
        product = ttnn.to_torch(ttnn.matmul(*on_card)).float()
    finally:
        ttnn.close_device(device)
    worst = ((product - first @ second).abs() / (first @ second)).max().item()
    print(f"{SIZE} x {SIZE}: off by {worst:.2%} at most, in 16 bits")
    return 0 if worst < 0.05 else 1


if __name__ == "__main__":
    sys.exit(main())
