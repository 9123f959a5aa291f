"""Every exception Dodona raises on purpose.

::

    DodonaError
    ├── Refused                  nothing was read, nothing was charged
    │   ├── BadQuery             the question is not one we answer (position, what is allowed)
    │   ├── BadSchema            the schema or its file does not say what it must
    │   ├── BadTable             the data is missing, empty, or not what the schema says
    │   ├── BadEffort            epsilon, rho, share or tolerance is absent, doubled or out of range
    │   ├── AddressTaken         a server cannot listen there: the port is taken, or the address another machine's
    │   ├── BudgetSpent          the price is more than what is left
    │   └── Unsupported          this oracle, engine or budget cannot do that, by its nature
    ├── LedgerError              the ledger cannot be trusted or reached; no answer leaves
    │   ├── LedgerUnavailable    locked, full, read-only, or an I/O error
    │   └── LedgerCorrupt        the hash chain, the arithmetic or the file is broken
    ├── BadRandomness            (``mechanisms.bits``) the system's source of randomness is stuck or repeats itself
    └── AnswerLost               charged, then an internal fault; one fixed text, no detail, no refund

Messages follow one shape: what must hold, what was given, what to do. They speak of the question, the schema and the
ledger only. No message ever contains a value from a row, and no row can cause one (HOSTILE R1 and R12).
"""

from __future__ import annotations

from typing import Any


class DodonaError(Exception):
    """The root of the tree."""


class Refused(DodonaError):
    """Refused before any row was read and before anything was charged."""


class BadQuery(Refused):
    """The question is outside the language. ``position`` is the offset in the asker's text, when there is one."""

    def __init__(self, message: str, position: int | None = None) -> None:
        super().__init__(message if position is None else f"{message} (at character {position + 1})")
        self.position = position


class BadSchema(Refused):
    """A schema, column or configuration file that does not say what it must."""


class BadTable(Refused):
    """Data that is missing, empty of columns, unreadable, or of another shape than the schema."""


class BadEffort(Refused):
    """An effort (tolerance, share, epsilon, rho, confidence) that is absent, doubled or out of range."""


class AddressTaken(Refused):
    """A server cannot listen where it was told to: the port is taken, or the address is not of this machine."""


class BudgetSpent(Refused):
    """The price is more than what is left. Amounts are exact, in the budget's own unit."""

    def __init__(self, message: str, *, price: float, left: float, unit: str) -> None:
        super().__init__(message)
        self.price = price
        self.left = left
        self.unit = unit


class Unsupported(Refused):
    """Something this oracle, engine or budget cannot do by its nature."""


class LedgerError(DodonaError):
    """The ledger cannot vouch for what was spent, so no answer leaves."""


class LedgerUnavailable(LedgerError):
    """Locked by another process, disk full, read-only, or an I/O error."""


class LedgerMissing(LedgerUnavailable):
    """No ledger is at the place, and opening makes none."""


class LedgerCorrupt(LedgerError):
    """The hash chain, the arithmetic or the file itself is broken, or its journal mode is unsafe."""


class AnswerLost(DodonaError):
    """Charged, then an internal fault. The text is fixed: a fault must not describe the data (HOSTILE R12)."""

    def __init__(self) -> None:
        super().__init__(
            "The question was charged, but an internal fault kept its answer. Asking again is charged again."
        )


# What to write instead: for each word that other databases know and this language does not, one sentence.

_FAMILIES = {
    "a question means the same every day and for everyone: write the value itself": """
        NOW GETDATE CURRENT_DATE CURRENT_TIME CURRENT_TIMESTAMP CURRENT_DATETIME CURRENT_TIMEZONE LOCALTIME
        LOCALTIMESTAMP SYSTIMESTAMP SYSDATE UTC_DATE UTC_TIME UTC_TIMESTAMP CURRENT_USER CURRENT_USER_ID
        CURRENT_ROLE CURRENT_SCHEMA CURRENT_DATABASE CURRENT_CATALOG SESSION_USER USER VERSION
        CURRENT_VERSION GETVARIABLE CURRENT_SETTING CURRENT_SESSION CURRENT_REGION CURRENT_ACCOUNT
        CURRENT_STATEMENT CURRENT_TRANSACTION LAST_QUERY_ID""",
    "chance comes in with the noise, and only there: leave it away": """
        RAND RANDOM RANDN RANDSTR UUID GEN_RANDOM_UUID GENERATE_UUID SHUFFLE UNIFORM NORMAL ZIPF SETSEED""",
    "it would show what single rows hold: GROUP BY the column and count": """
        GROUP_CONCAT STRING_AGG LISTAGG ARRAY_AGG LIST ANY_VALUE FIRST LAST FIRST_VALUE LAST_VALUE NTH_VALUE
        ARG_MAX ARG_MIN MAX_BY MIN_BY MODE HISTOGRAM ARRAY_CONCAT_AGG ARRAY_UNION_AGG ARRAY_UNIQUE_AGG
        JSON_AGG JSONB_AGG JSON_OBJECT_AGG OBJECT_AGG JSON_ARRAYAGG JSON_OBJECTAGG HASH_AGG BIT_AND BIT_OR
        BIT_XOR BITWISE_AND_AGG BITWISE_OR_AGG BITWISE_XOR_AGG APPROX_TOP_K APPROX_TOP_COUNT APPROX_TOP_SUM
        PRODUCT""",
    "GROUP BY the column and count its groups: SELECT COUNT(*) FROM (SELECT x, COUNT(*) AS n ...) WHERE n > 10": """
        APPROX_COUNT_DISTINCT APPROX_DISTINCT HLL HLL_COUNT APPROX_COUNT""",
    "ask for one quantile each: QUANTILE(x, 0.25), QUANTILE(x, 0.5), QUANTILE(x, 0.75)": """
        APPROX_QUANTILES APPROX_PERCENTILE PERCENTILE PERCENTILE_APPROX QUANTILES QUANTILE_CONT
        QUANTILE_DISC ANON_QUANTILES""",
    "it is no sum over rows: ask VARIANCE(x) and AVG(x), or sums of POWER(x, 3)": "SKEWNESS KURTOSIS SKEW ENTROPY MAD",
    "write EXP(AVG(LN(x))), of x above 0": "GEOMEAN GEOMETRIC_MEAN",
    "take REGR_SLOPE, REGR_INTERCEPT, REGR_COUNT, CORR(y, x), COVAR_POP(y, x) or VAR_POP(x)": """
        REGR_R2 REGR_SXX REGR_SXY REGR_SYY REGR_VALX REGR_VALY""",
    "rows are asked one by one: windows stand over aggregates, SUM(COUNT(*)) OVER (ORDER BY month)": """
        LAG LEAD NTILE CUME_DIST PERCENT_RANK ROW_NUMBER RANK DENSE_RANK GENERATOR GAP_FILL""",
    "a row gives one row: open a table that has the rows you want": """
        UNNEST EXPLODE EXPLODE_OUTER POSEXPLODE POSEXPLODE_OUTER FLATTEN INLINE STACK GENERATE_SERIES RANGE
        REDUCE TRANSFORM APPLY GENERATE_DATE_ARRAY GENERATE_TIMESTAMP_ARRAY""",
    "columns hold plain values: take such a value apart in a view, and open that": """
        ARRAY STRUCT MAP ROW OBJECT JSON_EXTRACT JSON_EXTRACT_SCALAR JSON_VALUE JSON_QUERY PARSE_JSON
        JSON_FORMAT JSON_KEYS JSON_TYPE JSON_EXISTS JSON_OBJECT JSON_ARRAY ARRAY_LENGTH ARRAY_SIZE
        ARRAY_CONTAINS ARRAY_TO_STRING SPLIT SPLIT_PART STRING_TO_ARRAY STRTOK ELT XMLELEMENT XMLGET
        XML_TABLE ST_POINT ST_DISTANCE PARSE_URL PARSE_IP GET_PATH TO_JSON""",
    "the sign between is written out, and two texts or more follow: CONCAT_WS('-', a, b), a || '-' || b": "CONCAT_WS",
    "patterns are written with LIKE, % and _": """
        REGEXP_LIKE REGEXP_MATCHES REGEXP_REPLACE REGEXP_EXTRACT REGEXP_EXTRACT_ALL REGEXP_COUNT
        REGEXP_INSTR REGEXP_SUBSTR REGEXP_SPLIT REGEXP_FULL_MATCH RLIKE GLOB SOUNDEX LEVENSHTEIN
        EDIT_DISTANCE JAROWINKLER_SIMILARITY SEARCH""",
    "engines differ in its last digit: use + - * /, SQRT, LN, EXP and POWER": """
        SIN COS TAN COT SEC CSC ASIN ACOS ATAN ATAN2 SINH COSH TANH COTH SECH CSCH ASINH ACOSH ATANH DEGREES
        RADIANS PI CBRT FACTORIAL COSINE_DISTANCE EUCLIDEAN_DISTANCE MANHATTAN_DISTANCE DOT_PRODUCT""",
    "the same value gives the same text, so it would say nothing more than the column": """
        MD5 SHA SHA1 SHA2 SHA256 SHA512 HASH FARM_FINGERPRINT CITY_HASH64 ENCRYPT DECRYPT STANDARD_HASH
        CRC32 COMPRESS TO_BASE64 FROM_BASE64 HEX UNHEX ENCODE DECODE""",
    "state the form of a text's dates in the schema, format = '%d/%m/%Y', and use the column as a date": """
        STR_TO_DATE STR_TO_TIME PARSE_DATE PARSE_DATETIME PARSE_TIMESTAMP TO_DATE TO_TIMESTAMP STRPTIME
        TIME_STR_TO_DATE FROM_ISO8601_DATE UNIX_TO_TIME FROM_UNIXTIME""",
    "keys of DATE_TRUNC('month', d) are ISO texts, and YEAR(d), MONTH(d) and ROUND(x, 2) are numbers: take these": """
        TO_CHAR DATE_FORMAT STRFTIME FORMAT_DATE FORMAT_DATETIME FORMAT_TIMESTAMP TIME_TO_STR NUMBER_TO_STR FORMAT
        TO_VARCHAR""",
    "times are in UTC here: a time with a zone is converted when it is read": "CONVERT_TIMEZONE AT_TIME_ZONE TIMEZONE",
    "move a date by INTERVAL: d + INTERVAL '3' MONTH": """
        DATE_ADD DATE_SUB ADD_MONTHS TIMESTAMP_ADD TIMESTAMP_SUB DATETIME_ADD DATETIME_SUB TIME_ADD TIME_SUB
        DATEADD""",
    "count the units between two dates by DATEDIFF('month', d, e)": """
        DATE_DIFF TIMESTAMP_DIFF TIMESTAMPDIFF DATETIME_DIFF TIME_DIFF MONTHS_BETWEEN AGE""",
    "compare the parts: MONTH(d) = 12, YEAR(d) = 2024, DATE_TRUNC('month', d)": """
        LAST_DAY NEXT_DAY PREVIOUS_DAY DAYNAME MONTHNAME MAKE_DATE DATE_FROM_PARTS TIMESTAMP_FROM_PARTS
        MAKE_INTERVAL DATE_BIN TIME_SLICE TIME_TRUNC TIMESTAMP_TRUNC DATETIME_TRUNC UNIX_SECONDS UNIX_MILLIS
        EPOCH""",
    "cut a number by BUCKET(x, 0, 10, 20, 30)": "WIDTH_BUCKET RANGE_BUCKET RANGE_N NTILE_BUCKET CUT HISTOGRAM_BIN",
    "write it as CASE WHEN ... THEN ... END": "NVL2 DECODE_CASE CHOOSE SWITCH NANVL EQUAL_NULL NULLIFZERO ZEROIFNULL",
    "it stands in GROUP BY: GROUP BY ROLLUP (a, b), with GROUPING(a) beside": "GROUPING GROUPING_ID ROLLUP CUBE",
    "effort and contributions are stated beside the statement, and by the table's unit": """
        ANON_COUNT ANON_SUM ANON_AVG ANON_VAR_POP ANON_STDDEV_POP ANON_QUANTILES DIFFERENTIAL_PRIVACY_COUNT
        CONTRIBUTION_BOUNDS_PER_GROUP CONTRIBUTION_BOUNDS_PER_ROW""",
    "it asks a model or a service, and a question is arithmetic of one row": """
        PREDICT ML_PREDICT ML_FORECAST AI_GENERATE AI_CLASSIFY AI_AGG AI_EMBED AI_SIMILARITY
        AI_SUMMARIZE_AGG VECTOR_SEARCH GENERATE_EMBEDDING GENERATE_TEXT GENERATE_TABLE MATCH_AGAINST""",
    "files are opened by whoever holds them, not by a question": "READ_CSV READ_PARQUET READ_TEXT GETENV SECRET",
}
HINTS = {word: hint for hint, words in _FAMILIES.items() for word in words.split()}
_SIGNS = {
    "DPipe": "||", "BitwiseOr": "|", "BitwiseXor": "^", "BitwiseNot": "~", "BitwiseLeftShift": "<<", "Like": "LIKE",
    "BitwiseRightShift": ">>", "ILike": "ILIKE", "SimilarTo": "SIMILAR TO", "RegexpLike": "~", "IntDiv": "DIV",
    "Dot": "a dot", "Bracket": "[ ]", "Star": "*", "Subquery": "a SELECT in an expression", "Select": "SELECT",
    "Exists": "EXISTS", "Any": "ANY", "All": "ALL", "AtTimeZone": "AT TIME ZONE", "Collate": "COLLATE",
    "Tuple": "a list", "GroupConcat": "STRING_AGG",
    "Window": "OVER", "Filter": "FILTER", "Distinct": "DISTINCT", "Ordered": "ORDER BY", "Lambda": "->", "Cast": "CAST",
    "TryCast": "TRY_CAST", "Interval": "INTERVAL", "Alias": "AS", "Parameter": "a parameter", "Placeholder": "?",
    "NullSafeEQ": "IS NOT DISTINCT FROM", "NullSafeNEQ": "IS DISTINCT FROM", "Escape": "ESCAPE", "Glob": "GLOB",
    "WithinGroup": "WITHIN GROUP", "Xor": "XOR", "Aliases": "AS", "PropertyEQ": ":=", "Kwarg": "=>", "Union": "UNION",
    "IgnoreNulls": "IGNORE NULLS", "RespectNulls": "RESPECT NULLS", "Within": "WITHIN", "Operator": "OPERATOR",
}  # fmt: skip


def word_of(tree: Any) -> str:
    """A part of a question as it was written: never by what the parser calls it."""
    name = type(tree).__name__
    if name == "Anonymous":
        return str(tree.this).upper()
    written = str(tree.meta.get("word", "")).upper()
    called: list[str] = getattr(type(tree), "sql_names", list)() if not written and name not in _SIGNS else []
    return written or _SIGNS.get(name) or next((one for one in called if "_" not in one), "this")


def hint_for(word: str) -> str:
    """What to write in its place."""
    return HINTS.get(word, "what is stands in docs/questions.md, and what is not may be a column of a view")
