"""When requests arrive: a Poisson process, made once and replayed under every system that is compared.

Open loop: a request is due at its time whether or not the one before it has been answered, and its latency counts
from then. A closed loop (the next request after the last answer) hides every stall behind a single slow request.
"""

import random


def poisson_arrivals(rate: float, seconds: float, seed: int) -> list[float]:
    """Draw arrival times.

    Args:
        rate: Mean requests a second.
        seconds: Length of the window.
        seed: Equal seeds give equal times, on every machine.

    Returns:
        Ascending times in seconds from the window's begin, all under `seconds`.
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
    """Draw a lead-in that settles caches and clocks, and then exactly so many requests that count.

    Args:
        rate: Mean requests a second.
        requests: How many count.
        lead: Length of the lead-in in seconds; its requests do not count.
        seed: Of the draw.

    Returns:
        The arrivals, those of the lead-in included, and the time of the last one.
    """
    seconds = lead + 2 * requests / rate + 10
    drawn = poisson_arrivals(rate, seconds, seed)
    last = sum(1 for time in drawn if time < lead) + requests
    return drawn[:last], drawn[last - 1]


def busiest_window(arrivals: list[float], length: float, after: float = 0.0) -> tuple[float, float]:
    """Find the window with the most typical look for a picture: as many arrivals as its mean, rounded up, or more.

    Args:
        arrivals: Ascending times in seconds.
        length: The window's length in seconds.
        after: Nothing earlier than this is looked at (the first moments are warm-up).

    Returns:
        (begin, end) in seconds. The first window that begins 5 ms before an arrival and holds at least one arrival
        more than the mean; else the fullest one.
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
