"""A heap of numbers, highest score first; `score` is indexed by number, `heap` has room for all of them."""

from __future__ import annotations

from coaltree._arrays import Floats, Ints
from coaltree._compile import borrowing


@borrowing
def push(heap: Ints, score: Floats, size: int, item: int) -> int:
    """Put a number into a heap of the given size; returns the new size."""
    k = size
    while k > 0 and score[heap[(k - 1) // 2]] < score[item]:
        heap[k] = heap[(k - 1) // 2]
        k = (k - 1) // 2
    heap[k] = item
    return size + 1


@borrowing
def pop(heap: Ints, score: Floats, size: int) -> int:
    """Take the best out of a heap of the given size, which then has one fewer."""
    best: int = heap[0]
    last = heap[size - 1]
    k = 0
    while 2 * k + 1 < size - 1:
        child = 2 * k + 1
        if child + 1 < size - 1 and score[heap[child + 1]] > score[heap[child]]:
            child += 1
        if score[heap[child]] <= score[last]:
            break
        heap[k] = heap[child]
        k = child
    heap[k] = last
    return best
