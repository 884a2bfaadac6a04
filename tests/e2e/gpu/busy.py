"""Says which cards CUDA shows to this process, then keeps each busy: `busy.py SECONDS`. Needs only the driver."""

from __future__ import annotations

import ctypes
import sys
import time

BYTES = 4 << 30

cuda = ctypes.CDLL("libcuda.so.1")


def call(name: str, *args: object) -> None:
    status = getattr(cuda, name)(*args)
    if status:
        raise SystemExit(f"{name} failed with {status}")


def cards() -> list[int]:
    call("cuInit", 0)
    number = ctypes.c_int()
    call("cuDeviceGetCount", ctypes.byref(number))
    return list(range(number.value))


def busy(card: int, seconds: float) -> None:
    """Fill memory of the card again and again."""
    device, context, memory = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
    call("cuDeviceGet", ctypes.byref(device), card)
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    call("cuCtxSetCurrent", context)
    call("cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(BYTES))
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for value in range(64):
            call("cuMemsetD8_v2", memory, ctypes.c_ubyte(value), ctypes.c_size_t(BYTES))
        call("cuCtxSynchronize")


def main() -> None:
    found = cards()
    print("cards", len(found), flush=True)
    for card in found:
        busy(card, float(sys.argv[1]))
    print("ended", flush=True)


if __name__ == "__main__":
    main()
