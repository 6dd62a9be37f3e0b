"""How a program lies in memory: the fields of its lines, as whole numbers of 64 bits each."""

PIECE = 512  # stored rows that one job of an attention reads
AT_ONCE = 64  # stored rows that one job of a projection reads

FIELDS = 18
PHASES, MOST_ROWS, MOST_QUERIES, MOST_DEPTH = range(4)  # the first line
COUNTER, FINISHED, JOBS, ENTRY, ENTRIES = range(5)  # a phase
FIRST, KIND, GIVEN, OUT, ROWS, WIDTH, MANY, KEY, KEY_STEP = range(9)  # an entry; KEY: or a weight
BIAS, MODE, ACROSS, OTHER = range(9, 13)  # PROJECT
VALUE, VALUE_STEP, ROW, DEPTH, MOST, FINE = range(9, 15)  # ATTEND; DEPTH, MOST: MERGE too
HEADS, KV_HEADS, BRANCHES, ATTENDED = range(6, 10)  # MERGE (HEADS: that share one), PREPARE
COS, SIN, KEYS, VALUES, HEAD_STEP, SCALE, QUERY_NORM, KEY_NORM, EPSILON = range(9, 18)  # and NORM
PROJECT, ATTEND, MERGE, NORM, PREPARE = range(5)  # KIND
SET, ADD, GATE = range(3)  # MODE: overwrite, add to float64, or `silu(first) * second`
