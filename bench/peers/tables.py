"""What was measured, as Markdown: an overview, all rows, the envelope."""
import statistics

LIMIT_FROM = 64 << 20  # bytes: from here on memory is what limits, whatever the caches hold
SMALL_TO = 64  # bytes: up to here the exchange of lines is
SMALLEST, ELEMENT_BYTES = 8, 4
ENVELOPE_FACTOR = 2.3  # twice the bytes should not take more than so many times as long
ENVELOPE_NOISE = 1.05  # medians of one and the same time differ by so much


def size_text(size):
    for unit, power in (("MiB", 20), ("KiB", 10)):
        if size >= 1 << power and size % (1 << power) == 0:
            return f"{size >> power} {unit}"
    return f"{size} B"


def time_text(us):
    return f"{us:.0f}" if us >= 1000 else f"{us:.3g}"


def limits_line(state, limits):
    return (f"Limits, cores {state}: exchange of two flag lines (X) {limits['line_exchange_ns']:.0f} ns; hand-over on one core by "
            f"sched_yield {limits['yield_ns']:.0f} ns, between cores by futex {limits['futex_ns']:.0f} ns; streaming copy, read "
            f"and written, {limits['copy_1_gbps']:.1f} GB/s by one core and {limits['copy_2_gbps']:.1f} GB/s by two, reading "
            f"alone {limits['read_2_gbps']:.1f}, writing alone {limits['write_2_gbps']:.1f}; reading 256 KiB that the other core "
            f"has just written {limits['dirty_gbps']:.1f} GB/s; TCP over lo: round trip "
            f"{limits['tcp_round_trip_ns'] / 1e3:.1f} µs, {limits['tcp_gbps']:.2f} GB/s.")


def limit_us(collective, ranks, size, limits):
    """What no library can go below on this machine: (µs, what it is), or None where nobody knows."""
    if not limits:
        return None
    if ranks == 2 and (collective == "barrier" or (collective == "all_reduce" and size <= SMALL_TO)):
        return limits["line_exchange_ns"] / 1e3, "X"
    # Bytes read and written where each rank reads its input and all others' where they lie, and writes its output once. A
    # reduction's block is read from all and the sum written to all.
    # Where more is written than read, or less, memory may take longer for that alone.
    moved = {"all_reduce": (ranks, ranks), "broadcast": (1, ranks - 1), "reduce_scatter": (ranks, 1),
             "all_gather": (1, ranks), "all_to_all": (ranks, ranks)}  # read, written
    if size < LIMIT_FROM or collective not in moved or "copy_2_gbps" not in limits:
        return None
    reads, writes = moved[collective]
    bounds = [((reads + writes) * size / limits["copy_2_gbps"], "memory"),
              (reads * size / limits["read_2_gbps"], "memory, reading"),
              (writes * size / limits["write_2_gbps"], "memory, writing")]
    ns, what = max(bounds)
    return ns / 1e3, what


def share_of_limit(collective, ranks, size, singles):
    """The median over the rounds of what the machine could have done in that round, over Tutti's time."""
    shares = []
    for single in singles:
        if limit := limit_us(collective, ranks, size, single.get("limits")):
            shares.append((limit[0] / single["time_us"], limit[1]))
    if not shares:
        return ""
    share, what = statistics.median_low(shares)
    return f"{share:.2f} ({what})"


def medians_of(found):
    """{library: µs}"""
    return {peer: statistics.median(row["time_us"] for row in rows) for peer, rows in found.items()}


def best_ratio(medians):
    """The best peer's time / Tutti's; None where there is no peer."""
    others = [us for peer, us in medians.items() if peer != "tutti"]
    return min(others) / medians["tutti"] if others and "tutti" in medians else None


def curves_of(results):
    """For drawings: {(collective, ranks, transport, mode, state): {library: [(size, µs)]}}"""
    curves = {}
    for (transport, ranks, mode, collective, size), states in sorted(results.times.items()):
        for state in results.states((transport, ranks, mode, collective, size)):
            for peer, median in medians_of(states[state]).items():
                curves.setdefault((collective, ranks, transport, mode, state), {}).setdefault(peer, []).append((size, median))
    return curves


def overview_lines(results):
    """A table of each mode, number of ranks and state of the cores: collectives down, sizes across."""
    cases = {}
    for (transport, ranks, mode, collective, size), states in results.times.items():
        for state in results.states((transport, ranks, mode, collective, size)):
            medians = medians_of(states[state])
            if "tutti" in medians:
                rows = cases.setdefault((transport, ranks, mode, state), {})
                rows.setdefault(collective, {})[column_of(collective, ranks, size)] = (medians["tutti"], best_ratio(medians))
    text = []
    for (transport, ranks, mode, state), rows in sorted(cases.items()):
        sizes = sorted({size for row in rows.values() for size in row})
        ratios = [ratio for row in rows.values() for _, ratio in row.values() if ratio]
        least = f"; of {len(ratios)} ratios the least {min(ratios):.2f}, the median {statistics.median(ratios):.2f}" if ratios else ""
        text += ["", f"{ranks} ranks over {transport}, {mode}, cores {state}, Tutti's µs (best peer / Tutti{least}):", "",
                 "| |" + "".join(f" {size_text(size)} |" for size in sizes), "|---|" + "---|" * len(sizes)]
        for collective, row in sorted(rows.items()):
            cells = [overview_cell(*row[size]) if size in row else "" for size in sizes]
            text.append(f"| {collective} | " + " | ".join(cells) + " |")
    return text[1:]


def column_of(collective, ranks, size):
    """Where what has blocks of an element at least stands: in the column of 8 B, and so does a barrier."""
    return SMALLEST if collective == "barrier" or size <= ranks * ELEMENT_BYTES else size


def overview_cell(us, ratio):
    if ratio is None:
        return time_text(us)
    text = f"{time_text(us)} ({ratio:.2f})"
    return f"**{text}**" if ratio < 1 else text


def lines_of(results, chosen):
    """The table of all rows."""
    lines = ["| collective | ranks | over | mode | cores | size | " + " | ".join(f"{p.title}" for p in chosen) +
             " | best peer / Tutti | limit / Tutti | Tutti: least, p99 of single calls |",
             "|---|---|---|---|---|---|" + "---|" * len(chosen) + "---|---|---|"]
    for key in sorted(results.times, key=lambda k: (k[3], k[0], k[1], k[2], k[4])):
        transport, ranks, mode, collective, size = key
        for state in results.states(key):
            found = results.times[key][state]
            medians = medians_of(found)
            ratio = best_ratio(medians)
            cells = [time_text(medians[peer.name]) if peer.name in medians else "" for peer in chosen]
            cells.append(f"{ratio:.2f}" if ratio else "")
            singles = found.get("tutti", [])
            limited = transport == "shm" and mode not in ("in_place", "apart")
            cells.append(share_of_limit(collective, ranks, size, singles) if limited else "")
            cells.append(f"{time_text(min(r['min_us'] for r in singles))}, "
                         f"{time_text(statistics.median(r['p99_us'] for r in singles))}" if singles else "")
            what = "" if collective == "barrier" else size_text(size)
            lines.append(f"| {collective} | {ranks} | {transport} | {mode} | {state} | {what} | " + " | ".join(cells) + " |")
    return lines


def envelope_lines(curves, copies):
    """Where Tutti's time falls though the size doubles, or grows by more than ENVELOPE_FACTOR; and what copying does there."""
    lines, steps = [], 0
    for (collective, ranks, transport, mode, state), libraries in sorted(curves.items()):
        points = sorted(libraries.get("tutti", []))
        for (size, us), (next_size, next_us) in zip(points, points[1:]):
            if next_size != 2 * size:
                continue
            steps += 1
            ratio = next_us / us
            if 1 / ENVELOPE_NOISE <= ratio <= ENVELOPE_FACTOR:
                continue
            # A rank touches two to three times the size (its input, its output, where messages lie), a copy two times.
            by_copying = [copies[2 * n] / copies[n] for n in (size, 2 * size) if 2 * n in copies and n in copies]
            lines.append(f"- {collective}, {ranks} ranks over {transport}, {mode}, cores {state}: {size_text(size)} takes "
                         f"{time_text(us)} µs, {size_text(next_size)} {time_text(next_us)} µs: {ratio:.2f} times as long"
                         + (f" (copying: {max(by_copying):.2f})" if by_copying else ""))
    text = [f"Envelope: of {steps} doublings, {len(lines)} take less time than before, or more than {ENVELOPE_FACTOR} times "
            "as long.", "", *lines]
    if copies:
        text += ["", "Plain copying by two cores at once, each between two buffers of its own, µs (and times the size before): " +
                 ", ".join(f"{size_text(size)} {time_text(us)}" + (f" ({us / copies[size // 2]:.2f})" if size // 2 in copies else "")
                           for size, us in copies.items()) + "."]
    return text
