#pragma once
#include "epilogue.h"

enum {
    ROW_GROUP = 2,
    ROWS_PER_PARTIAL = 256
}; /* groups of 4 rows are 15-30 % slower if they share a page: they confuse the hardware prefetcher */

/* For all the compiler knows, a vector store could change the op or its norm. So hot loops work on local copies of
 * them. */

/* Calls body(first row, rows, first channel, lanes, ...). `rows` is the constant ROW_GROUP and `lanes` the constant
 * LANES except at the end of the tensor. */
#define FOR_ROWS_AND_CHANNELS(start, end, channels, body, ...) \
    do { \
        i64 row_ = (start); \
        for (; row_ + ROW_GROUP <= (end); row_ += ROW_GROUP) { \
            i32 c_ = 0; \
            for (; c_ + LANES <= (channels); c_ += LANES) body(row_, ROW_GROUP, c_, LANES, __VA_ARGS__); \
            if (c_ < (channels)) body(row_, ROW_GROUP, c_, (channels) - c_, __VA_ARGS__); \
        } \
        for (i32 c_ = 0; row_ < (end) && c_ < (channels); c_ += LANES) \
            body(row_, (i32)((end) - row_), c_, MIN(LANES, (channels) - c_), __VA_ARGS__); \
    } while (0)
