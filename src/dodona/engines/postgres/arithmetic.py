"""Arithmetic in PostgreSQL that never raises and gives IEEE's results to the last bit.

PostgreSQL raises where a finite sum, product or quotient overflows and where a product or quotient of numbers other
than 0 rounds to 0. So each operation that could (``engines/intervals.py`` says which) is guarded: an overflow gives
the infinity IEEE gives (which ``finite`` then makes NULL), a vanishing result gives 0.

With one constant argument the result is monotone in the other, so the guard is one comparison with a threshold found
here by bisection over the doubles. With two variables the operation is first done on scaled arguments, by powers of
two and so exactly: RN(ab) overflows iff RN(ab 2^-1200) >= 2^-176 (the rounding and its ties are the same there), and
it vanishes iff ab <= 2^-1075, that is ab 2^1200 <= 2^125. Where RN(ab 2^1200) = 2^125 exactly, the product of the
53-bit significands decides on which side ab lies; a quotient that rounds to a power of two is one, or lies below it.

Every branch tests the sizes it relies on in its own WHEN: the planner evaluates constants in branches never taken.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence

from dodona.engines.intervals import LARGEST, Interval

TOP, BOTTOM = 2.0**500, 2.0**-500  # between these, products and quotients are ordinary


def literal(value: float) -> str:
    """A typed constant: a bare ``1e0`` would be a numeric, and so would what is computed with it."""
    return f"'{'Infinity' if value == math.inf else '-Infinity' if value == -math.inf else repr(float(value))}'::float8"


def guards(op: str, own: Sequence[Interval]) -> tuple[bool, bool]:
    """Whether the operation can overflow, and whether it can vanish."""
    a, b = own
    if op in ("add", "sub"):
        return not a.most + b.most <= LARGEST, False
    if op == "mul":
        return not a.most * b.most <= LARGEST, a.tiny * b.tiny == 0.0
    return not a.most / b.tiny <= LARGEST, b.most > 0 and a.tiny / b.most == 0.0


def guarded(op: str, a: str, b: str, own: Sequence[Interval]) -> str | None:
    """The guarded text of add, sub, mul or div; None where the plain one cannot raise."""
    over, under = guards(op, own)
    if not (over or under):
        return None
    fixed = [one.constant for one in own]
    if op in ("mul", "div") and (fixed[0] is not None or fixed[1] is not None):
        return _with_constant(op, a, b, fixed)
    if op == "mul":
        return _product(a, b, over, under)
    return {"add": _sum, "sub": _difference, "div": _quotient}[op](a, b)


def _sum(a: str, b: str) -> str:
    return _sums(a, "+", b, f"{a} > {_ZERO}")


def _difference(a: str, b: str) -> str:
    return _sums(a, "-", b, f"{a} > {_ZERO}")


def _sums(a: str, sign: str, b: str, positive: str) -> str:
    """Both must be huge to overflow, and then their halves are exact."""
    half, huge, edge = literal(0.5), literal(2.0**960), literal(2.0**1023)
    beyond = f"abs({a}) > {huge} AND abs({b}) > {huge} AND abs({a} * {half} {sign} {b} * {half}) >= {edge}"
    infinite = f"CASE WHEN {positive} THEN {literal(math.inf)} ELSE {literal(-math.inf)} END"
    return f"CASE WHEN {beyond} THEN {infinite} ELSE {a} {sign} {b} END"


def _product(a: str, b: str, over: bool, under: bool) -> str:
    """Only the branches that can be needed; first the common case."""
    one, up, down = literal(1.0), literal(2.0**600), literal(2.0**-600)
    scaled, edge = f"abs(({a} * {up}) * ({b} * {up}))", literal(2.0**125)
    shrunk = f"abs(({a} * {down}) * ({b} * {down}))"
    vanishes = f"{scaled} < {edge} OR ({scaled} = {edge} AND NOT {_above_a_power_of_two(a, b)})"
    tests = [f"abs({x}) {sign} {literal(end)}" for x in dict.fromkeys((a, b)) for sign, end in _limits(over, under)]
    small = (
        f"WHEN {a} = {_ZERO} OR {b} = {_ZERO} THEN {a} * {b} "  # NULL where the other is
        f"WHEN abs({a}) < {one} AND abs({b}) < {one} THEN CASE WHEN {vanishes} THEN {_ZERO} ELSE {a} * {b} END "
    )
    large = (
        f"WHEN abs({a}) >= {one} AND abs({b}) >= {one} THEN "
        f"CASE WHEN {shrunk} >= {literal(2.0**-176)} THEN {_infinity(a, b)} ELSE {a} * {b} END "
    )
    common = f"CASE WHEN {' AND '.join(tests)} THEN {a} * {b} "
    return f"{common}{small if under else ''}{large if over else ''}ELSE {a} * {b} END"


def _limits(over: bool, under: bool) -> list[tuple[str, float]]:
    return [(">=", BOTTOM)] * under + [("<=", TOP)] * over


def _quotient(a: str, b: str) -> str:
    two, up, down = literal(2.0), literal(2.0**600), literal(2.0**-600)
    large = f"abs(({a} * {down}) / ({b} * {up})) >= {literal(2.0**-176)}"
    small = f"abs(({a} * {up}) / ({b} * {down})) <= {literal(2.0**125)}"
    return (
        f"CASE WHEN {b} = {_ZERO} THEN NULL "
        f"WHEN {_ordinary(a)} AND {_ordinary(b)} THEN {a} / {b} "
        f"WHEN {a} = {_ZERO} THEN {a} / {b} "
        f"WHEN abs({a}) >= abs({b}) AND abs({a}) >= {literal(2.0**-60)} AND abs({b}) < {two} "
        f"THEN CASE WHEN {large} THEN {_infinity(a, b)} ELSE {a} / {b} END "
        f"WHEN abs({a}) < abs({b}) AND abs({a}) <= {literal(2.0**-50)} AND abs({b}) >= {two} "
        f"THEN CASE WHEN {small} THEN {_ZERO} ELSE {a} / {b} END "
        f"ELSE {a} / {b} END"
    )


_ZERO = literal(0.0)


def _ordinary(x: str) -> str:
    return f"abs({x}) BETWEEN {literal(BOTTOM)} AND {literal(TOP)}"


def _infinity(a: str, b: str) -> str:
    return f"CASE WHEN ({a} < {_ZERO}) = ({b} < {_ZERO}) THEN {literal(math.inf)} ELSE {literal(-math.inf)} END"


def bits(x: str) -> str:
    """The 64 bits of a double, as a bigint."""
    return f"('x' || encode(float8send({x}), 'hex'))::bit(64)::bigint"


def _above_a_power_of_two(a: str, b: str) -> str:
    """Whether |ab| is above the power of two that it rounds to; the significands are those of the scaled arguments."""
    up = literal(2.0**600)
    first, second = (f"(({bits(f'({x} * {up})')} & {2**52 - 1}) + {2**52})::numeric" for x in (a, b))
    product = f"({first} * {second})"
    return (
        f"(({product} > {2**104} AND {product} < {3 * 2**103}) OR ({product} > {2**105} AND {product} < {3 * 2**104}))"
    )


def _with_constant(op: str, a: str, b: str, fixed: Sequence[float | None]) -> str:
    """x * c, x / c or c / x: two thresholds on |x|."""
    number = fixed[1] if fixed[0] is None else fixed[0]
    assert number is not None
    x, size = (a, abs(number)) if fixed[0] is None else (b, abs(number))
    text = {"mul": f"{a} * {b}", "div": f"{a} / {b}"}[op]
    if op == "div" and fixed[0] is not None:  # c / x falls as |x| grows
        least_finite = smallest(lambda t: t > 0 and size / t <= LARGEST)
        most_kept = smallest(lambda t: t > 0 and size / t == 0.0)
        arms = f"WHEN {x} = {_ZERO} THEN NULL "
        if size:
            arms += f"WHEN abs({x}) < {literal(least_finite)} THEN {_infinity(a, b)} "
            arms += f"WHEN abs({x}) >= {literal(most_kept)} THEN {_ZERO} " if most_kept < math.inf else ""
        return f"CASE {arms}ELSE {text} END"
    if op == "div" and size == 0.0:
        return "NULL::float8"
    result: Callable[[float], float] = (lambda t: t * size) if op == "mul" else (lambda t: t / size)
    if size == 0.0:
        return text  # 0 times what is finite
    kept, infinite = smallest(lambda t: result(t) > 0.0), smallest(lambda t: result(t) > LARGEST)
    arms = f"WHEN abs({x}) < {literal(kept)} THEN {_ZERO} "
    arms += f"WHEN abs({x}) >= {literal(infinite)} THEN {_infinity(a, b)} " if infinite < math.inf else ""
    return f"CASE {arms}ELSE {text} END"


def smallest(holds: Callable[[float], bool]) -> float:
    """The smallest double >= 0 for which a property that then stays true holds; infinity where none."""
    low, high = 0, struct.unpack("<q", struct.pack("<d", math.inf))[0]  # doubles order as their bits
    while low < high:
        middle = (low + high) // 2
        value = struct.unpack("<d", struct.pack("<q", middle))[0]
        low, high = (low, middle) if holds(value) else (middle + 1, high)
    return float(struct.unpack("<d", struct.pack("<q", low))[0])


def remainder(a: str, b: str, own: Sequence[Interval]) -> str:
    """C's fmod, exactly: PostgreSQL has no remainder of doubles. NULL where b is 0.

    Whole numbers below 2^62 have an integer remainder. Otherwise a = m 2^s and b = n 2^t with whole m, n below 2^53 and
    s >= t where |a| >= |b|, and the remainder is (m 2^(s-t) mod n) 2^t: in bigints while m 2^(s-t) fits, else numerics.
    """
    limit = literal(2.0**62)
    whole = f"({a}::bigint % {b}::bigint)::float8"
    nothing = f"WHEN {b} = {_ZERO} THEN NULL WHEN abs({a}) < abs({b}) THEN {a} "
    if all(one.whole for one in own):
        return f"CASE {nothing}ELSE {whole} END"
    (m, s), (n, t) = _parts(a), _parts(b)
    shift = f"({s} - {t})"
    narrow, wide = f"(({m} << {shift}::int) % {n})", f"(({m}::numeric * 2::numeric ^ {shift}) % {n}::numeric)::bigint"
    left = f"CASE WHEN {shift} <= 9 THEN {narrow} ELSE {wide} END"
    # 2^(t - 1075) in two factors, so that each is an ordinary double; the product is exact.
    size = f"({left})::float8 * {literal(2.0**-537)} * power({literal(2.0)}, ({t} - 538)::float8)"
    integers = f"{a} = trunc({a}) AND {b} = trunc({b}) AND abs({a}) < {limit} AND abs({b}) < {limit}"
    return (
        f"CASE {nothing}WHEN {integers} THEN {whole} WHEN abs({a}) <= {literal(LARGEST)} THEN sign({a}) * ({size}) END"
    )


def _parts(x: str) -> tuple[str, str]:
    """Significand and exponent: |x| = m 2^(s - 1075)."""
    stored, fraction = f"(({bits(x)} >> 52) & 2047)", f"({bits(x)} & {2**52 - 1})"
    return f"({fraction} + CASE WHEN {stored} > 0 THEN {2**52} ELSE 0 END)", f"greatest({stored}, 1)"
