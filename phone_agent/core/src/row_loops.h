#pragma once
#include "epilogue.h"

enum { ROW_GROUP = 2, ROWS_PER_PARTIAL = 256 }; /* groups of 4 confuse prefetchers: 15-30 % slower where 4 rows share a page */

/* To the compiler a vector that is stored might be the op itself, or its norm. So hot loops work on copies of these. */

/* Calls body(first row, rows, first channel, lanes, ...): rows is the constant GROUP and lanes the constant LANES
 * wherever the tensor is not at its end. */
#define FOR_ROWS_AND_CHANNELS(start, end, channels, body, ...)                                       \
    do {                                                                                              \
        i64 row_ = (start);                                                                           \
        for (; row_ + ROW_GROUP <= (end); row_ += ROW_GROUP) {                                                \
            i32 c_ = 0;                                                                               \
            for (; c_ + LANES <= (channels); c_ += LANES) body(row_, ROW_GROUP, c_, LANES, __VA_ARGS__);  \
            if (c_ < (channels)) body(row_, ROW_GROUP, c_, (channels) - c_, __VA_ARGS__);                 \
        }                                                                                             \
        for (i32 c_ = 0; row_ < (end) && c_ < (channels); c_ += LANES)                                \
            body(row_, (i32)((end) - row_), c_, MIN(LANES, (channels) - c_), __VA_ARGS__);            \
    } while (0)

