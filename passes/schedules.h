/* Schedules that were measured: a table from operators to steps, and its file.
 *
 * An operator's key is a hash of what it computes and of the target's facts that schedules depend
 * on: equal layers share an entry, and names, weights and the rest of the model do not matter. The
 * file is text for people and version control, sorted by key:
 *
 *     mlcc schedules 1
 *     # k25_conv_layer3_1_conv2_conv: 1712.4 us, 1989.7 us as the compiler would choose
 *     9f31c6d0a0b1c2d3 fuse r0 r1; split i2 6; bind i2i unroll; ...
 *
 * What follows '#' at the start of a line is a comment. Lowering replays the steps (nest_replay)
 * where it meets the key, and chooses by itself elsewhere.
 */
#ifndef PASSES_SCHEDULES_H
#define PASSES_SCHEDULES_H

#include "ir/graph.h"
#include "ir/target.h"

typedef struct ScheduleEntry {
    uint64_t key;
    const char *steps;
    const char *comment; /* the line before it, NULL: none; not kept by reading */
    int line;            /* in the file */
} ScheduleEntry;

typedef struct Schedules {
    const char *file;    /* its name, for messages */
    const char *comment; /* the line below the first, NULL: none; not kept by reading */
    VEC(ScheduleEntry) entries;
} Schedules;

/* The key of a reduce for a target of plain loops; 0 for all else, which has no entries. */
uint64_t schedule_key(Arena *arena, const Op *op, const Target *t);
/* The entry's number, -1: there is none. */
int schedules_find(const Schedules *s, uint64_t key);
/* Adds an entry; keeps the table sorted. False if there is one with its key. */
bool schedules_add(Arena *arena, Schedules *s, ScheduleEntry entry);
/* Reads a file's text. False after a diagnostic (E5003). */
bool schedules_read(Arena *arena, Diag *diag, const char *text, size_t length, Schedules *s);
void schedules_print(Text *out, const Schedules *s);

#endif
