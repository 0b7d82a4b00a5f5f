"""Arrival times of requests: a Poisson process, drawn once and replayed under every system that is compared.

The load is an open loop: each request arrives at its scheduled time, even if the previous request is still being
served. Latency counts from the scheduled arrival. A closed loop, in which the next request starts after the last
answer, was rejected: a stall would delay only one request, and the percentiles would hide the stall.
"""

import random


def poisson_arrivals(rate: float, seconds: float, seed: int) -> list[float]:
    """Draw arrival times.

    Args:
        rate: Mean requests a second.
        seconds: Length of the window.
        seed: Equal seeds give equal times, on every machine.

    Returns:
        Ascending times in seconds from the start of the window, all below `seconds`.
    """
    if rate <= 0 or seconds <= 0:
        raise ValueError(f"rate and seconds must be positive, not {rate} and {seconds}")
    draw = random.Random(seed)
    times: list[float] = []
    now = draw.expovariate(rate)
    while now < seconds:
        times.append(now)
        now += draw.expovariate(rate)
    return times


def arrivals_with_lead(rate: float, requests: int, lead: float, seed: int) -> tuple[list[float], float]:
    """Draw a lead-in, in which caches and clocks settle, and then exactly `requests` measured requests.

    Args:
        rate: Mean requests a second.
        requests: Number of measured requests.
        lead: Length of the lead-in in seconds; its requests are not measured.
        seed: Seed of the draw.

    Returns:
        All arrivals, including those of the lead-in, and the time of the last one.
    """
    seconds = lead + 2 * requests / rate + 10
    drawn = poisson_arrivals(rate, seconds, seed)
    last = sum(1 for time in drawn if time < lead) + requests
    return drawn[:last], drawn[last - 1]


def picture_window(arrivals: list[float], length: float, after: float = 0.0) -> tuple[float, float]:
    """Choose a window for a picture: a window with slightly more arrivals than an average window.

    Args:
        arrivals: Ascending times in seconds.
        length: The window's length in seconds.
        after: Earlier arrivals are ignored (they are warm-up).

    Returns:
        (begin, end) in seconds: the first window that begins 5 ms before an arrival and holds at least one arrival
        more than an average window. If no window does, the result is the window with the most arrivals.
    """
    late = [time for time in arrivals if time >= after]
    if not late:
        return (after, after + length)
    wanted = len(late) / max(late[-1] - after, length) * length + 1
    best, most = late[0], 0
    for first in late:
        held = sum(1 for time in late if first <= time < first + length - 0.005)
        if held > most and first + length < max(late[-1], length):
            best, most = first, held
        if most >= wanted:
            break
    begin = max(0.0, best - 0.005)
    return (begin, begin + length)
